"""Runs of an experiment: one model on one draw of data, in another process, kept once it is done."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from gcgp import __version__
from gcgp.domain.whole_file import whole_file

FORMAT = "gcgp-results"


@dataclass(frozen=True)
class Settings:
    """What the user may change about a table; results of other settings are other results."""

    data: str | None = None
    """Folder of the data; None looks at GCGP_DATA."""
    per_class: int | None = None
    """Training signals of each class; None takes all, or the sizes of the paper."""
    inducing: int | None = None
    """Inducing patches of our models; None takes each model's own number."""
    vertices: int | None = None
    """Of meshes; None takes the sizes of the paper."""


@dataclass(frozen=True)
class Run:
    """One model on one draw of the data of one condition."""

    table: str
    model: str
    condition: str
    """Such as `100 a class`, or `500 vertices`."""
    seed: int
    settings: Settings

    @property
    def name(self) -> str:
        """Under which its result is kept."""
        return f"{self.model} | {self.condition} | seed {self.seed}"


Work = Callable[[Run], dict[str, Any]]
"""What gives the outcome of a run."""


class Results:
    """The results of one table in one JSON file, which is written anew after each run."""

    def __init__(self, path: Path, table: str, settings: Settings) -> None:
        self.path = path
        self.content: dict[str, Any] = {
            "format": FORMAT,
            "table": table,
            # Where data lie does not matter, and how many vertices a mesh has is said by each run.
            "settings": {k: v for k, v in asdict(settings).items() if k not in ("data", "vertices")},
            "gcgp": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "cores": torch.get_num_threads(),
            "runs": {},
        }
        if path.exists():
            self._go_on(json.loads(path.read_text()))

    def _go_on(self, found: Any) -> None:
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f"{self.path}: not a file of results; choose another one with --json")
        for key in ("table", "settings"):
            if found[key] != self.content[key]:
                raise ValueError(
                    f"{self.path}: holds results with {key} {found[key]!r}, but asked for is "
                    f"{self.content[key]!r}; choose another file with --json"
                )
        self.content = found

    @property
    def runs(self) -> dict[str, dict[str, Any]]:
        """What each run that is done gave, by its name."""
        return dict(self.content["runs"])

    def add(self, run: Run, outcome: dict[str, Any]) -> None:
        """Keep what a run gave."""
        own = {"model": run.model, "condition": run.condition, "seed": run.seed}
        self.content["runs"][run.name] = own | outcome
        with whole_file(self.path) as part:
            part.write_text(self.as_json())

    def as_json(self) -> str:
        """The file's text: a line for each run, so that files of many runs stay small and can be compared."""
        head = json.dumps({key: value for key, value in self.content.items() if key != "runs"}, indent=2)
        rows = [f"    {json.dumps(name)}: {json.dumps(run)}" for name, run in self.content["runs"].items()]
        return head.removesuffix("\n}") + ',\n  "runs": {\n' + ",\n".join(rows) + "\n  }\n}\n"


def carry_out(runs: Sequence[Run], results: Results, work: Work, *, apart: bool = True) -> None:
    """Do the runs that have no result yet, and say on the error stream how far it is.

    The runs of one model in one condition have a process of their own, unless `apart` is False: so their
    peak of memory is their own, and if it is killed for want of memory, the results of others live on.
    """
    left = [run for run in runs if run.name not in results.runs]
    if len(left) < len(runs):
        print(f"{len(runs) - len(left)} of {len(runs)} runs are in {results.path}", file=sys.stderr)
    number = 0
    for _, alike in groupby(left, lambda run: (run.model, run.condition)):
        with _process(work) if apart else nullcontext(work) as do:
            for run in alike:
                number += 1
                print(f"run {number} of {len(left)}: {run.name} …", file=sys.stderr, flush=True)
                outcome = do(run)
                results.add(run, outcome)
                print(f"  {_summary(outcome)}", file=sys.stderr, flush=True)


def _end_with_parent() -> None:
    """Let this process end when the one that started it does, even if that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _process(work: Work) -> Iterator[Work]:
    """The same work, done by another process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _end_with_parent) as pool:

        def do(run: Run) -> dict[str, Any]:
            try:
                return pool.submit(work, run).result()
            except BrokenProcessPool as error:
                raise RuntimeError(
                    f"{run.name}: its process was ended, perhaps for want of memory"
                ) from error

        yield do


def _summary(outcome: dict[str, Any]) -> str:
    parts = [f"error {outcome['error']:.2%}"] if "error" in outcome else []
    parts += [f"NLL {outcome['nll']:.4f}"] if "nll" in outcome else []
    parts += [f"fit {outcome['seconds_fit']:.0f} s"] if "seconds_fit" in outcome else []
    return ", ".join(parts) or "done"
