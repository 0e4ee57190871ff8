"""What a long run has reached, on disk, so that it can go on after its process has died."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gcgp._runtime.atomic import atomic_write
from gcgp._runtime.processes import SINGLE_PROCESS, ProcessGroup

FORMAT = "gcgp-checkpoint"


class Checkpoint:
    """A file with the latest state of each stage of one run, replaced whole each time; no code is in it.

    `run` tells one run from another: the file of a different run is met with a ValueError, not overwritten.
    Of several processes that fit one model the first alone reads and writes it.
    """

    def __init__(
        self, path: str | Path, run: str, every: float = 30.0, processes: ProcessGroup = SINGLE_PROCESS
    ) -> None:
        self.path = Path(path)
        self.run = run
        self.processes = processes
        self.every = every
        """Seconds between two writes of a stage's state."""
        self._written: dict[str, float] = {}
        found = self._read() if processes.rank == 0 else {}
        self._states: dict[str, dict[str, Tensor]] = processes.gather(found)[0]

    def load(self, stage: str) -> dict[str, Tensor] | None:
        """The latest state of a stage; None if it was never saved."""
        return self._states.get(stage)

    def due(self, stage: str) -> bool:
        """Whether it is time to save this stage again."""
        return time.monotonic() - self._written.get(stage, -float("inf")) >= self.every

    def save(self, stage: str, state: dict[str, Tensor]) -> None:
        """Keep the state of a stage. If the file cannot be written, warn; the next try is when it is due."""
        self._states[stage] = state
        if self.processes.rank > 0:
            self._written[stage] = time.monotonic()
            return
        flat = {f"{s}/{name}": t.contiguous() for s, own in self._states.items() for name, t in own.items()}
        try:
            with atomic_write(self.path) as part:
                save_file(flat, part, {"format": FORMAT, "run": self.run})
        except OSError as error:
            warnings.warn(
                f"checkpoint={str(self.path)!r} could not be written ({error}); the fit continues, but "
                "cannot be resumed from here",
                RuntimeWarning,
                stacklevel=2,
            )
        self._written[stage] = time.monotonic()

    def _read(self) -> dict[str, dict[str, Tensor]]:
        states: dict[str, dict[str, Tensor]] = {}
        if not self.path.exists():
            return states
        try:
            with safe_open(str(self.path), framework="pt") as file:
                metadata = file.metadata() or {}
                for key in file.keys():  # noqa: SIM118
                    stage, _, name = key.partition("/")
                    states.setdefault(stage, {})[name] = file.get_tensor(key).clone()
        except (SafetensorError, OSError) as error:
            raise ValueError(f"checkpoint={str(self.path)!r}: not a checkpoint of gcgp ({error})") from error
        if metadata.get("format") != FORMAT:
            raise ValueError(f"checkpoint={str(self.path)!r}: a safetensors file, but no checkpoint of gcgp")
        if metadata.get("run") != self.run:
            raise ValueError(
                f"checkpoint={str(self.path)!r} is of another run: its data, options or number of "
                "processes were not these; give another file, or remove this one"
            )
        return states
