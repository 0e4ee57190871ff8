"""How time and memory grow with signals N, vertices |V|, inducing patches M, dimensions D and classes C.

    python -m benchmarks.scaling --json FILE

Images of noise, radial bins, nothing searched or learned: fit computes features, sums and closed form;
predict (of as many signals) computes features, diagonal and posterior. Each size is doubled four times with
the others fixed; each point is a separate process, whose peak memory is measured. The exponent is the slope
of the last three sizes, where fixed costs matter least.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from benchmarks.timing import command_line, report


@dataclass(frozen=True)
class Size:
    """The size of a problem."""

    N: int = 1000
    V: int = 256
    M: int = 128
    D: int = 8
    C: int = 4


EXPECTED = {
    "N": ("1", "1"),
    "V": ("1 (kff: a sample of 128)", "1 to 2 (kff is V²)"),
    "M": ("1 (Kuf) to 3 (factors)", "1 (Kuf) to 2 (solves)"),
    "D": ("0 (exp) to 1 (products)", "0 (exp) to 1 (products)"),
    "C": ("0 (Kuf) to 1 (factors)", "0 (Kuf) to 1 (solves)"),
}
SMALLEST = {"N": 500, "V": 64, "M": 64, "D": 4, "C": 2}
DOUBLINGS = 4


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--only", nargs="+", default=list(EXPECTED), choices=list(EXPECTED))
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(Size(**json.loads(options.one)), options.repeats)))
        return
    rows: dict[str, str] = {}
    results: dict[str, Any] = {}
    for name in options.only:
        points = []
        for doubling in range(DOUBLINGS + 1):
            size = replace(Size(), **{name: SMALLEST[name] << doubling})
            command = [sys.executable, "-m", "benchmarks.scaling", "--one", json.dumps(asdict(size))]
            command += ["--repeats", str(options.repeats)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            points.append({"size": asdict(size), **json.loads(done.stdout.splitlines()[-1])})
            last = points[-1]
            print(
                f"{name} = {size.__dict__[name]:5d}: fit {last['fit']:7.2f} s, "
                f"predict {last['predict']:7.2f} s, {last['peak_gb']:.2f} GB",
                flush=True,
            )
        exponents = {
            quantity: exponent([p[quantity] for p in points]) for quantity in ("fit", "predict", "peak_gb")
        }
        results[name] = {"points": points, "exponents": exponents, "expected": EXPECTED[name]}
        rows[name] = (
            f"fit {exponents['fit']:.2f}, expected {EXPECTED[name][0]};  "
            f"predict {exponents['predict']:.2f}, expected {EXPECTED[name][1]};  "
            f"memory {exponents['peak_gb']:.2f}"
        )
    report("Exponents", rows, results, options.json)


def exponent(values: list[float]) -> float:
    """The slope of log₂ of the last three values, whose sizes double."""
    return float(np.polyfit(np.arange(3), np.log2(values[-3:]), 1)[0])


def measure(size: Size, repeats: int) -> dict[str, float]:
    """The shortest times over some repeats, and the peak memory of this process."""
    from experiments.metrics import peak_memory
    from gcgp import Dirichlet, GCGPClassifier, Patch, PatchKernel, Radial, Runtime

    rng = np.random.default_rng(0)
    side = 1 << (size.V.bit_length() // 2)
    images = rng.random((size.N, size.V // side, side), dtype=np.float32)
    labels = np.arange(size.N) % size.C
    best = {"fit": np.inf, "predict": np.inf}
    for _ in range(repeats + 1):  # the first one loads compiled loops
        model = GCGPClassifier(
            Radial(np.linspace(0, 3, size.D).tolist(), 0.5),
            n_inducing=size.M,
            inducing="random",
            kernel=PatchKernel(lengthscale=0.3, variance=1e3),
            likelihood=Dirichlet(alpha=1e-2),
            patch=Patch(position=False),
            search=None,
            runtime=Runtime(progress=False),
        )
        start = time.perf_counter()
        model.fit(images, labels)
        fitted = time.perf_counter()
        model.predict_proba(images)
        best["fit"] = min(best["fit"], fitted - start)
        best["predict"] = min(best["predict"], time.perf_counter() - fitted)
    return {**best, "peak_gb": peak_memory()}


if __name__ == "__main__":
    main()
