"""Execution of runs: one model on one draw of data, in a separate process, saved when it finishes."""

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gcgp import __version__
from gcgp._runtime.atomic import atomic_write

FORMAT = "gcgp-results"
PUBLISHED_GRAPHS = "MNISTSuperpixels"
"""In results files, for any folder with these graphs."""


def print_progress(message: str) -> None:
    """Print to stderr, so that stdout contains only results."""
    print(message, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Settings:
    """What the user can change about a table; results of different settings are never mixed."""

    data: str | None = None
    """Data folder; None: the environment variable GCGP_DATA."""
    per_class: int | None = None
    """Training signals per class; None: all, or the numbers of the paper."""
    inducing: int | None = None
    """Inducing patches of GP models; None: the default of each model."""
    vertices: int | None = None
    """Vertices per mesh; None: the numbers of the paper."""
    graphs: str | None = None
    """Folder of PyG's `MNISTSuperpixels`; None: superpixels are computed from MNIST."""


@dataclass(frozen=True)
class Run:
    """One model on one draw of the data of one condition."""

    table: str
    model: str
    condition: str
    """Such as `100 per class` or `500 vertices, 7 poses`."""
    seed: int
    settings: Settings

    @property
    def name(self) -> str:
        """The key of its result."""
        return f"{self.model} | {self.condition} | seed {self.seed}"


Work = Callable[[Run], dict[str, Any]]
"""Executes a run and returns its result."""


class Results:
    """The results of one table in a JSON file, which is rewritten after each run."""

    def __init__(self, path: Path, table: str, settings: Settings, jobs: int = 1) -> None:
        self.path = path
        self.content: dict[str, Any] = {
            "format": FORMAT,
            "table": table,
            # The data folder does not matter, and the condition of a run contains the number of vertices.
            "settings": {"per_class": settings.per_class, "inducing": settings.inducing}
            | ({"graphs": PUBLISHED_GRAPHS} if settings.graphs else {}),
            "gcgp": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "cores": threads_per_run(jobs),
            "runs": {},
        }
        if path.exists():
            self._resume(json.loads(path.read_text()))

    def _resume(self, saved: Any) -> None:
        if not isinstance(saved, dict) or saved.get("format") != FORMAT:
            raise ValueError(f"{self.path}: not a results file; choose another file with --json")
        for key in ("table", "settings"):
            if saved[key] != self.content[key]:
                raise ValueError(
                    f"{self.path}: contains results for {key} {saved[key]!r}, not {self.content[key]!r}; "
                    "choose another file with --json"
                )
        self.content = saved

    @property
    def runs(self) -> dict[str, dict[str, Any]]:
        """The result of each finished run, by name."""
        return dict(self.content["runs"])

    def add(self, run: Run, result: dict[str, Any]) -> None:
        """Save the result of a run."""
        identity = {"model": run.model, "condition": run.condition, "seed": run.seed}
        self.content["runs"][run.name] = identity | result
        with atomic_write(self.path) as part:
            part.write_text(self.as_json())

    def as_json(self) -> str:
        """The text of the file, with one line per run, so that files stay small and comparable."""
        head = json.dumps({key: value for key, value in self.content.items() if key != "runs"}, indent=2)
        rows = [f"    {json.dumps(name)}: {json.dumps(run)}" for name, run in self.content["runs"].items()]
        return head.removesuffix("\n}") + ',\n  "runs": {\n' + ",\n".join(rows) + "\n  }\n}\n"


def execute(
    runs: Sequence[Run], results: Results, work: Work, *, jobs: int = 1, separate: bool = True
) -> None:
    """Execute the runs that have no result yet, `jobs` at a time, and print progress to stderr.

    With `separate`, the runs of one model in one condition get a new process: their peak memory is measured
    alone, and if the process is killed, other results are kept. After a failure no further run starts.
    """
    pending = [run for run in runs if run.name not in results.runs]
    if len(pending) < len(runs):
        print_progress(f"{len(runs) - len(pending)} of {len(runs)} runs are finished, see {results.path}")
    queue, lock = deque(enumerate(pending, 1)), threading.Lock()

    def run_queue() -> None:
        with ExitStack() as processes:
            work_here, process_for = work, None
            while True:
                with lock:
                    if not queue:
                        return
                    number, run = queue.popleft()
                    print_progress(f"run {number} of {len(pending)}: {run.name} …")
                if separate and process_for != (run.model, run.condition):
                    processes.close()
                    process_for = (run.model, run.condition)
                    work_here = processes.enter_context(_in_new_process(work, jobs))
                result = work_here(run)
                with lock:
                    results.add(run, result)
                    print_progress(f"  {f'{run.name}: ' if jobs > 1 else ''}{_summary(result)}")

    if jobs == 1:
        run_queue()
        return
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for future in as_completed([pool.submit(run_queue) for _ in range(jobs)]):
                future.result()
        finally:
            queue.clear()


def threads_per_run(jobs: int) -> int:
    """Threads of a run when `jobs` runs execute at a time."""
    return max(1, torch.get_num_threads() // jobs)


def _start_process(threads: int) -> None:
    """Limit the threads of this process, and end it when its parent ends, even if that was killed."""
    import numba
    import scipy.linalg  # noqa: F401  limits apply to loaded libraries, and SciPy has its own BLAS
    from threadpoolctl import threadpool_limits

    threadpool_limits(threads)
    torch.set_num_threads(threads)
    numba.set_num_threads(min(threads, numba.get_num_threads()))
    parent = multiprocessing.parent_process()
    assert parent is not None

    def exit_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()


@contextmanager
def _in_new_process(work: Work, jobs: int) -> Iterator[Work]:
    """The same work, executed in a new process with its share of the cores."""
    context, threads = multiprocessing.get_context("spawn"), threads_per_run(jobs)
    with ProcessPoolExecutor(1, context, _start_process, (threads,)) as pool:

        def submit(run: Run) -> dict[str, Any]:
            try:
                return pool.submit(work, run).result()
            except BrokenProcessPool as error:
                raise RuntimeError(f"{run.name}: its process was killed, perhaps out of memory") from error

        yield submit


def _summary(result: dict[str, Any]) -> str:
    formats = {"error": "error {:.2%}", "nll": "NLL {:.4f}", "seconds_fit": "fit {:.0f} s"}
    return ", ".join(text.format(result[key]) for key, text in formats.items() if key in result) or "finished"
