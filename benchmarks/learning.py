"""Superpixels, 1000 per class: a weighting learned from the paper's start, radii {0, 1, 2} and width 1.

    GCGP_DATA=FOLDER python -m benchmarks.learning --json FILE

Three radial × eight angular bins and nothing else in a patch. The table contains the errors of the start, of
hand-picked radii (1, 3, 6 and width 1.5), and of the learned radii, on all 10,000 test digits.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from benchmarks.timing import command_line, report
from experiments.data import draw_per_class
from experiments.metrics import Scores, peak_memory
from gcgp import GCGPClassifier, Patch, Polar, superpixels
from gcgp.datasets.images import load_mnist

PAPER_ERROR = 0.063


def main() -> None:
    parser = command_line(__doc__, mnist=True)
    parser.add_argument("--per-class", type=int, default=1000)
    parser.add_argument("--inducing", type=int, default=750)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # each step of learning
    train, test = load_mnist(options.data)
    chosen = draw_per_class(train.labels, options.per_class, options.seed)
    signals = superpixels(train.images[chosen], random_state=options.seed)
    test_graphs = superpixels(test.images, random_state=options.seed + 1)
    rows: dict[str, str] = {}
    results: dict[str, Any] = {
        "per_class": options.per_class,
        "inducing": options.inducing,
        "paper_error": PAPER_ERROR,
    }
    for name, weighting, learn in (
        ("start", Polar([0.0, 1.0, 2.0], 8, 1.0), None),
        ("hand-picked", Polar([1.0, 3.0, 6.0], 8, 1.5), None),
        ("learned", Polar([0.0, 1.0, 2.0], 8, 1.0), True),
    ):
        start = time.perf_counter()
        model = GCGPClassifier(
            weighting,
            patch=Patch(position=False, bin_counts=False),
            n_inducing=options.inducing,
            search=None,
            learn=learn,
            random_state=options.seed,
        ).fit(signals, train.labels[chosen])
        seconds = time.perf_counter() - start
        scores = Scores.of(model.predict_proba(test_graphs), test.labels)
        fitted: Any = model.weightings_[0]
        results[name] = {
            "error": scores.error,
            "nll": scores.nll,
            "ece": scores.ece,
            "seconds_fit": seconds,
            "radii": fitted.radii.tolist(),
            "radial_width": float(fitted.radial_width),
        }
        radii = ", ".join(f"{radius:.2f}" for radius in fitted.radii.tolist())
        rows[f"{name}: radii {radii}, width {float(fitted.radial_width):.2f}"] = (
            f"error {scores.error:.2%}  NLL {scores.nll:.3f}  fit {seconds:.0f} s"
        )
        print(*list(rows.items())[-1], flush=True)
    results["peak_memory_gb"] = peak_memory()
    report(f"Superpixels, {options.per_class} per class, 3 × 8 bins", rows, results, options.json)


if __name__ == "__main__":
    main()
