"""Runs of an experiment: one model on one draw of data, in another process, kept once it is done."""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from gcgp import __version__
from gcgp._runtime.atomic import atomic_write

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

    def __init__(self, path: Path, table: str, settings: Settings, jobs: int = 1) -> None:
        self.path = path
        self.content: dict[str, Any] = {
            "format": FORMAT,
            "table": table,
            # Where data lie does not matter, and how many vertices a mesh has is said by each run.
            "settings": {k: v for k, v in asdict(settings).items() if k not in ("data", "vertices")},
            "gcgp": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "cores": threads_of_each(jobs),
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
        with atomic_write(self.path) as part:
            part.write_text(self.as_json())

    def as_json(self) -> str:
        """The file's text: a line for each run, so that files of many runs stay small and can be compared."""
        head = json.dumps({key: value for key, value in self.content.items() if key != "runs"}, indent=2)
        rows = [f"    {json.dumps(name)}: {json.dumps(run)}" for name, run in self.content["runs"].items()]
        return head.removesuffix("\n}") + ',\n  "runs": {\n' + ",\n".join(rows) + "\n  }\n}\n"


def carry_out(
    runs: Sequence[Run], results: Results, work: Work, *, jobs: int = 1, apart: bool = True
) -> None:
    """Do the runs that have no result yet, `jobs` at a time, and say on the error stream how far it is.

    Runs of one model in one condition have processes of their own, unless `apart` is False: so their peak
    of memory is their own, and if one is killed for want of memory, the results of others live on. After
    a run that fails no other is begun.
    """
    left = [run for run in runs if run.name not in results.runs]
    if len(left) < len(runs):
        print(f"{len(runs) - len(left)} of {len(runs)} runs are in {results.path}", file=sys.stderr)
    waiting, lock = deque(enumerate(left, 1)), threading.Lock()

    def one_after_another() -> None:
        with ExitStack() as processes:
            do, kind = work, None
            while True:
                with lock:
                    if not waiting:
                        return
                    number, run = waiting.popleft()
                    print(f"run {number} of {len(left)}: {run.name} …", file=sys.stderr, flush=True)
                if apart and kind != (run.model, run.condition):
                    processes.close()
                    kind, do = (run.model, run.condition), processes.enter_context(_process(work, jobs))
                outcome = do(run)
                with lock:
                    results.add(run, outcome)
                    own = f"{run.name}: " if jobs > 1 else ""
                    print(f"  {own}{_summary(outcome)}", file=sys.stderr, flush=True)

    if jobs == 1:
        one_after_another()
        return
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for line in as_completed([pool.submit(one_after_another) for _ in range(jobs)]):
                line.result()
        finally:
            waiting.clear()


def threads_of_each(jobs: int) -> int:
    """Threads of a run, where so many are done at a time."""
    return max(1, torch.get_num_threads() // jobs)


def _begin(threads: int) -> None:
    """Make this process one of several that share the cores."""
    import numba
    import scipy.linalg  # noqa: F401  limits hold for libraries that are loaded, and SciPy has a BLAS of its own
    from threadpoolctl import threadpool_limits

    threadpool_limits(threads)
    torch.set_num_threads(threads)
    numba.set_num_threads(min(threads, numba.get_num_threads()))
    _end_with_parent()


def _end_with_parent() -> None:
    """Let this process end when the one that started it does, even if that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _process(work: Work, jobs: int) -> Iterator[Work]:
    """The same work, done by another process, one of so many that share the cores."""
    context, threads = multiprocessing.get_context("spawn"), threads_of_each(jobs)
    with ProcessPoolExecutor(1, context, _begin, (threads,)) as pool:

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
