"""Worker processes under supervision: a case that crashes its process, or takes too long, is a failure."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CASE_SECONDS = 5.0
START_SECONDS = 300.0
"""Until a worker is ready, including compilation."""
MAX_GB = 1.0
COMMAND = ["-m", "benchmarks.fuzz.worker"]
"""Arguments of Python in a worker; the folder follows."""
ROOT = Path(__file__).parents[2]
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Case:
    """A target and the seed of one of its cases."""

    target: str
    seed: int


@dataclass
class Record:
    """Outcomes so far."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    peak_gb: float = 0.0

    @property
    def cases(self) -> int:
        """Number of finished cases."""
        return sum(sum(counter.values()) for counter in self.counts.values())

    def add(self, case: Case, answer: dict[str, Any]) -> None:
        """Count a case."""
        failed = answer["kind"] not in ("accepted", "rejected")
        counter = self.counts.setdefault(case.target, Counter())
        counter["failed" if failed else answer["kind"]] += 1
        self.peak_gb = max(self.peak_gb, answer.get("peak_gb", 0.0))
        if failed:
            shown = {key: answer.get(key, "") for key in ("kind", "detail", "description")}
            self.failures.append({"target": case.target, "case_seed": case.seed, **shown})


def start_process(folder: Path, requests: int) -> subprocess.Popen[bytes]:
    """Start the process of a worker; `requests` is its stdin."""
    cache = folder / "cache"
    environment = os.environ | ONE_THREAD | {"OMP_WAIT_POLICY": "passive", "GCGP_CACHE": str(cache)}
    return subprocess.Popen(
        [sys.executable, *COMMAND, str(folder)],
        stdin=requests,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=environment | {"TMPDIR": str(folder)},
    )


def compile_loops(folder: Path) -> None:
    """Start a worker without any case, so that the loops of Numba are compiled and cached on disk.

    Compilation takes more memory than any case, and would count in the peak memory of a worker.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with start_process(folder, subprocess.DEVNULL) as process:
        try:
            process.communicate(timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise RuntimeError(f"a worker was not ready after {START_SECONDS:g} s") from None


class Worker:
    """One process and its current case."""

    def __init__(self, folder: Path, case_seconds: float = CASE_SECONDS) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.case_seconds = folder, case_seconds
        self.case: Case | None = None
        self.description = ""
        self.start()

    def start(self) -> None:
        """Start the process; it is busy until it reports that it is ready."""
        self.process = start_process(self.folder, subprocess.PIPE)
        self.unread = b""
        self.case, self.deadline = None, time.monotonic() + START_SECONDS

    def send(self, case: Case) -> None:
        """Send a case to the process."""
        assert self.process.stdin is not None
        self.case, self.description = case, ""
        self.deadline = time.monotonic() + self.case_seconds
        self.process.stdin.write(json.dumps({"target": case.target, "seed": case.seed}).encode() + b"\n")
        self.process.stdin.flush()

    def answers(self) -> list[dict[str, Any]]:
        """The complete lines that the process has written, or a crash if it ended."""
        assert self.process.stdout is not None
        content = os.read(self.process.stdout.fileno(), 1 << 20)
        if not content:
            return [{"kind": "crash", "detail": f"the process ended with {self.process.wait()}"}]
        *lines, self.unread = (self.unread + content).split(b"\n")
        return [json.loads(line) for line in lines]

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def run_all(cases: Iterator[Case], workers: list[Worker], record: Record) -> Iterator[None]:
    """Run all cases; yields after every answer and several times per second."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
        while selector.get_map():
            for key, _ in selector.select(timeout=0.2):
                for answer in key.data.answers():
                    _handle_answer(key.data, answer, cases, selector, record)
            for key in list(selector.get_map().values()):
                if time.monotonic() > key.data.deadline:
                    answer = {"kind": "hang", "detail": f"still running after {key.data.case_seconds:g} s"}
                    _restart(key.data, answer, selector, record)
            yield


def _handle_answer(
    worker: Worker,
    answer: dict[str, Any],
    cases: Iterator[Case],
    selector: selectors.BaseSelector,
    record: Record,
) -> None:
    if answer["kind"] == "crash":
        _restart(worker, answer, selector, record)
        return
    if answer["kind"] == "announcement":
        worker.description = answer["description"]
        return
    if worker.case is not None:
        if answer["peak_gb"] > MAX_GB and answer["kind"] in ("accepted", "rejected"):
            answer |= {
                "kind": "memory",
                "detail": f"peak memory {answer['peak_gb']:.2f} GB",
            }
        if answer["peak_gb"] > MAX_GB:
            _restart(worker, answer, selector, record)
            return
        record.add(worker.case, answer)
    record.peak_gb = max(record.peak_gb, answer["peak_gb"])
    following = next(cases, None)
    if following is None:
        worker.case = None
        selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
        return
    worker.send(following)


def _restart(
    worker: Worker, answer: dict[str, Any], selector: selectors.BaseSelector, record: Record
) -> None:
    """Record the failure of a worker's case, and restart its process."""
    selector.unregister(worker.process.stdout)  # type: ignore[arg-type]
    case = worker.case
    worker.stop()
    if case is None:
        raise RuntimeError(f"a worker did not start: {answer['detail']}")
    record.add(case, {"description": worker.description, **answer})
    worker.start()
    selector.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
