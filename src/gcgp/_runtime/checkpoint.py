"""Checkpoints: the state of a fit on disk, from which an interrupted fit resumes."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gcgp._runtime.atomic import atomic_write
from gcgp._runtime.processes import SINGLE_PROCESS, ProcessGroup

CHECKPOINT_FORMAT = "gcgp-checkpoint"


class Checkpoint:
    """A safetensors file with the latest state of each stage of a fit, under a stable key per stage.

    `fit` is a digest of the fit; a file of a different fit raises a ValueError and is left unchanged. Of
    several processes that fit one model, only the first reads and writes the file.
    """

    def __init__(
        self, path: str | Path, fit: str, interval: float = 30.0, processes: ProcessGroup = SINGLE_PROCESS
    ) -> None:
        self.path = Path(path)
        self.fit = fit
        self.interval = interval
        """Seconds between two writes of the same key."""
        self.processes = processes
        self._written: dict[str, float] = {}
        states = self._read() if processes.rank == 0 else {}
        self._states: dict[str, dict[str, Tensor]] = processes.gather(states)[0]

    def load(self, key: str) -> dict[str, Tensor] | None:
        """The latest state under a key; None if there is none."""
        return self._states.get(key)

    def due(self, key: str) -> bool:
        """Whether enough time has passed to save this key again."""
        return time.monotonic() - self._written.get(key, -float("inf")) >= self.interval

    def save(self, key: str, state: dict[str, Tensor]) -> None:
        """Store a state under a key. If the file cannot be written, warn and continue."""
        self._states[key] = state
        if self.processes.rank == 0:
            self._write()
        self._written[key] = time.monotonic()

    def _write(self) -> None:
        tensors = {
            f"{key}/{name}": tensor.contiguous()
            for key, state in self._states.items()
            for name, tensor in state.items()
        }
        try:
            with atomic_write(self.path) as part:
                save_file(tensors, part, {"format": CHECKPOINT_FORMAT, "run": self.fit})
        except OSError as error:
            warnings.warn(
                f"checkpoint={str(self.path)!r} could not be written ({error}); the fit continues, but "
                "cannot be resumed from here",
                RuntimeWarning,
                stacklevel=3,
            )

    def _read(self) -> dict[str, dict[str, Tensor]]:
        states: dict[str, dict[str, Tensor]] = {}
        if not self.path.exists():
            return states
        try:
            with safe_open(str(self.path), framework="pt") as file:
                metadata = file.metadata() or {}
                for entry in file.keys():  # noqa: SIM118
                    key, _, name = entry.rpartition("/")
                    states.setdefault(key, {})[name] = file.get_tensor(entry).clone()
        except (SafetensorError, OSError) as error:
            raise ValueError(f"checkpoint={str(self.path)!r}: not a checkpoint of gcgp ({error})") from error
        if metadata.get("format") != CHECKPOINT_FORMAT:
            raise ValueError(
                f"checkpoint={str(self.path)!r}: a safetensors file, but not a checkpoint of gcgp"
            )
        if metadata.get("run") != self.fit:
            raise ValueError(
                f"checkpoint={str(self.path)!r} is of another fit, with other data, options or number of "
                "processes; use another file, or remove this one"
            )
        return states
