"""One fit with two processes under torchrun against the same fit with one, one thread each.

    GCGP_DATA=FOLDER python -m benchmarks.distributed --json FILE

All training images of MNIST, or `--images` of them; default options except weighting, position and float64;
each process has half of the images. Rounds alternate, and the shortest time of each counts: that of `fit`,
in processes that have compiled everything before. Parameters and predictions of both are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import command_line, report
from gcgp import GCGPClassifier, Patch, Polar, Runtime, shard
from gcgp._runtime.processes import ProcessGroup
from gcgp.datasets.images import load_mnist


def main() -> None:
    parser = command_line(__doc__, mnist=True)
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--inducing", type=int, default=750)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.out is not None:
        one_fit(options)
        return
    seconds: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "fit.npz"
        fits = {}
        for _ in range(options.rounds):
            for processes in (1, 2):
                launch(processes, out)
                fits[processes] = dict(np.load(out))
                seconds[processes].append(float(fits[processes]["seconds"]))
                print(f"{processes} processes: {seconds[processes][-1]:.1f} s", flush=True)
    alone, together = fits[1], fits[2]
    differences = {
        name: float(np.abs(together[name] - alone[name]).max() / np.abs(alone[name]).max())
        for name in ("weights", "variance", "alpha", "bound", "probabilities")
    }
    ratio = min(seconds[2]) / min(seconds[1])
    results = {
        "images": options.images,
        "inducing": options.inducing,
        "seconds": seconds,
        "time_ratio": ratio,
        "relative_differences": differences,
    }
    rows = {
        "one process": f"{min(seconds[1]):.1f} s",
        "two processes": f"{min(seconds[2]):.1f} s",
        "time of two / time of one": f"{ratio:.2f}",
        "largest relative difference": f"{max(differences.values()):.1e}",
    }
    title = f"{options.images} images of MNIST, {options.inducing} inducing patches, float64"
    report(f"{title}, one thread per process", rows, results, options.json)


def launch(processes: int, out: Path) -> None:
    """Run this module in this number of processes with one thread each."""
    program = [sys.executable, "-m"]
    if processes > 1:
        program += ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"]
    threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [*program, "benchmarks.distributed", *sys.argv[1:], "--out", str(out)]
    subprocess.run(command, env={**os.environ, **threads}, check=True)


def one_fit(options: argparse.Namespace) -> None:
    """The work of each process: a small fit that compiles everything, then the timed fit."""
    train, test = load_mnist(options.data)
    weighting = Polar([1, 3, 5], 8)
    fixed: dict[str, Any] = {
        "patch": Patch(position=False),
        "search": None,
        "runtime": Runtime("float64"),
    }
    few = slice(0, 200)
    GCGPClassifier(weighting, n_inducing=20, **fixed).fit(*shard(train.images[few], train.labels[few]))
    some = slice(0, options.images)
    X, y = shard(train.images[some], train.labels[some])
    model = GCGPClassifier(weighting, n_inducing=options.inducing, **fixed)
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    if ProcessGroup.current().rank == 0:
        np.savez(
            options.out,
            seconds=seconds,
            weights=model.posterior_.weights.numpy(),
            variance=model.variance_,
            alpha=model.alpha_,
            bound=model.bound_,
            probabilities=model.predict_proba(test.images[:200]),
        )
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
