"""Random hostile files and inputs: no crash, no hang, no NaN, no unclear error.

    python -m benchmarks.fuzz --seconds 600 --json FILE

A case is a mesh, model or cache file, an input to a constructor of `Signals`, or data, labels and
parameters of `fit` and `predict`. If it is accepted, all predictions must be finite, the same for a signal
alone, and the same after saving and loading. Or it is rejected by a clear ValueError or TypeError. Anything
else is a failure: another exception, a message of a library, a RuntimeWarning, a crash, more than 5 seconds
or more than 1 GB. The exit status is 1 if there was a failure. To repeat one case:

    python -m benchmarks.fuzz --only TARGET --case-seed N
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.fuzz.pool import CASE_SECONDS, Case, Record, Worker, compile_loops, run_all
from benchmarks.fuzz.targets import TARGETS
from benchmarks.timing import command_line, report

CASES_PER_SEED = 10_000_000


def main() -> int:
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=list(TARGETS), metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--case-seed", type=int, metavar="N", help="run only this case of --only")
    options = parser.parse_args()
    if options.case_seed is not None and options.only is None:
        parser.error("--case-seed needs --only TARGET")
    with tempfile.TemporaryDirectory(prefix="gcgp-fuzz-") as folder:
        if options.case_seed is not None:
            cases, workers = iter([Case(options.only, options.case_seed)]), 1
        else:
            cases, workers = draw_cases(options.seed, options.only), options.workers
        start = time.perf_counter()
        record = run(cases, Path(folder), workers, options.seconds)
    results = summary(record, options.seed, time.perf_counter() - start)
    for failure in record.failures[:50]:
        print(
            f"{failure['target']} --case-seed {failure['case_seed']}: {failure['kind']}: {failure['detail']}"
        )
        print(f"    {failure['description']}")
    rows = {name: _row(counts) for name, counts in results["targets"].items()}
    rows["all"] = f"{record.cases} cases, {len(record.failures)} failures"
    rows["peak memory of a worker"] = f"{record.peak_gb:.2f} GB"
    report(f"{results['seconds']:.0f} s, seed {options.seed}", rows, results, options.json)
    return 1 if record.failures else 0


def draw_cases(seed: int, only: str | None) -> Iterator[Case]:
    """An endless series of cases, of one target or of all in proportion to their shares."""
    rng = np.random.default_rng(seed)
    names = [only] if only else list(TARGETS)
    shares = np.array([TARGETS[name].share for name in names])
    for n in count(seed * CASES_PER_SEED):
        yield Case(names[int(rng.choice(len(names), p=shares / shares.sum()))], n)


def run(
    cases: Iterator[Case],
    folder: Path,
    workers: int,
    seconds: float,
    case_seconds: float = CASE_SECONDS,
) -> Record:
    """Run cases until `seconds` have passed since the first worker was ready."""
    record = Record()
    started: list[float] = []

    def within_time() -> Iterator[Case]:
        for case in cases:
            started.append(time.monotonic()) if not started else None
            if time.monotonic() - started[0] > seconds:
                return
            yield case

    compile_loops(folder / "compiling")
    processes = [Worker(folder / f"worker-{n}", case_seconds) for n in range(workers)]
    try:
        with tqdm(unit=" cases", disable=None) as bar:
            for _ in run_all(within_time(), processes, record):
                bar.update(record.cases - bar.n)
                bar.set_postfix(failures=len(record.failures), refresh=False)
    finally:
        for process in processes:
            process.stop()
    return record


def summary(record: Record, seed: int, seconds: float) -> dict[str, Any]:
    """The results for JSON."""
    return {
        "cases": record.cases,
        "failures": len(record.failures),
        "peak_gb": record.peak_gb,
        "seconds": seconds,
        "seed": seed,
        "targets": {name: dict(record.counts[name]) for name in TARGETS if name in record.counts},
        "failing_cases": record.failures,
    }


def _row(counts: dict[str, int]) -> str:
    kinds = ("accepted", "rejected", "failed")
    return ", ".join(f"{counts.get(kind, 0)} {kind}" for kind in kinds)


if __name__ == "__main__":
    sys.exit(main())
