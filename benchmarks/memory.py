"""Fit and predict signals whose patches need four times `memory_limit`: peak memory, and result.

    python -m benchmarks.memory --json FILE

Noisy images of 28 × 28 pixels with one of four blobs, 24-dimensional patches: 75 KB per image. Peak memory
is that of the whole process, including interpreter, libraries and images. A second process has a limit
within which all patches fit; the predictions of both are compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import numpy as np

from benchmarks.timing import command_line, report
from experiments.metrics import peak_memory
from gcgp import GCGPClassifier, Patch, Polar, Runtime, Signals
from gcgp._runtime.memory import as_bytes

SIDE, BINS = 28, 24
PATCHES_PER_LIMIT = 4


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--limit", default="1 GB")
    parser.add_argument("--inducing", type=int, default=100)
    parser.add_argument("--child", metavar="LIMIT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    count = -(-PATCHES_PER_LIMIT * as_bytes(options.limit) // (SIDE * SIDE * BINS * 4))
    if options.child:
        print(json.dumps(measure(count, options.child, options.inducing)))
        return
    limits = {"limited": options.limit, "unlimited": str(10 * as_bytes(options.limit))}
    runs: dict[str, dict[str, Any]] = {}
    for name, limit in limits.items():
        command = [sys.executable, "-m", "benchmarks.memory", "--limit", options.limit, "--child", limit]
        done = subprocess.run(
            [*command, "--inducing", str(options.inducing)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(done.stderr)
        runs[name] = json.loads(done.stdout)
        print(f"{name}: peak {runs[name]['peak_gb']:.2f} GB, {runs[name]['seconds']:.0f} s", flush=True)
    probabilities = {name: np.array(run.pop("probabilities")) for name, run in runs.items()}
    difference = float(np.abs(probabilities["limited"] - probabilities["unlimited"]).max())
    patches = count * SIDE * SIDE * BINS * 4 / 1e9
    results = {
        "limit_gb": as_bytes(options.limit) / 1e9,
        "patches_gb": patches,
        "images": count,
        "peak_gb": runs["limited"]["peak_gb"],
        "largest_difference": difference,
        "runs": runs,
    }
    rows = {
        "memory_limit": f"{results['limit_gb']:.2f} GB",
        "patches": f"{patches:.2f} GB",
        "peak memory of the process": f"{results['peak_gb']:.2f} GB",
        "peak memory without a limit": f"{runs['unlimited']['peak_gb']:.2f} GB",
        "largest difference of probabilities": f"{difference:.1e}",
    }
    report(f"{count} images, {options.inducing} inducing patches", rows, results, options.json)


def measure(count: int, limit: str, inducing: int) -> dict[str, Any]:
    """Fit and predict images in this process."""
    images, labels = blobs(count)
    signals = Signals.from_images(images)
    del images
    start = time.perf_counter()
    model = GCGPClassifier(
        Polar([1, 3, 5], BINS // 3),
        patch=Patch(position=False),
        n_inducing=inducing,
        search=None,
        runtime=Runtime(memory_limit=limit),
    ).fit(signals, labels)
    probabilities = model.predict_proba(signals[: count // 8])
    return {
        "peak_gb": peak_memory(),
        "seconds": time.perf_counter() - start,
        "error": float((probabilities.argmax(axis=1) != labels[: count // 8]).mean()),
        "probabilities": probabilities[:1000].tolist(),
    }


def blobs(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy images with a blob that is round, wide, high or hollow."""
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=count)
    rows, columns = np.indices((SIDE, SIDE), dtype=np.float32) - (SIDE - 1) / 2
    shapes = [np.exp(-(columns**2 / a + rows**2 / b) / 2) for a, b in ((9, 9), (25, 4), (4, 25))]
    shapes.append(np.exp(-((np.hypot(rows, columns) - 6) ** 2) / 4))
    images = np.empty((count, SIDE, SIDE), dtype=np.float32)
    for start in range(0, count, 1000):
        some = slice(start, start + 1000)
        clean = np.stack(shapes).astype(np.float32)[labels[some]]
        images[some] = clean + 0.3 * rng.standard_normal(clean.shape, dtype=np.float32)
    return images, labels


if __name__ == "__main__":
    main()
