"""Superpixels, 1000 per class: the best of several models, selected without the test set.

    GCGP_DATA=FOLDER python -m benchmarks.best --json FILE

Models of different sizes, with one or two scales, are fitted to four fifths of the training graphs and
compared by the negative log likelihood of the rest. The best one is fitted to all of them, in closed form
and with natural gradients, and tested on all 10,000 test digits.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks.timing import command_line, report
from experiments.data import draw_per_class
from experiments.metrics import Scores, peak_memory
from gcgp import GCGPClassifier, PatchKernel, Polar, superpixels
from gcgp.datasets.images import load_mnist

PAPER_ERROR = 0.063
CANDIDATES: dict[str, dict[str, Any]] = {
    "750 inducing patches": {"n_inducing": 750},
    "1500 inducing patches": {"n_inducing": 1500},
    "1500, shorter lengthscale": {"n_inducing": 1500, "kernel": PatchKernel(lengthscale=1.0)},
    "2250 inducing patches": {"n_inducing": 2250},
    "two scales, 1000 each": {
        "n_inducing": 1000,
        "weighting": ["polar", Polar([1.5, 4.5, 7.5, 10.5], 8, 2.2)],
    },
}


def main() -> None:
    parser = command_line(__doc__, mnist=True)
    parser.add_argument("--per-class", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    train, test = load_mnist(options.data)
    chosen = draw_per_class(train.labels, options.per_class, options.seed)
    signals, labels = superpixels(train.images[chosen], random_state=options.seed), train.labels[chosen]
    fitted, held_out = train_test_split(
        np.arange(len(labels)), test_size=0.2, stratify=labels, random_state=options.seed
    )
    rows: dict[str, str] = {}
    results: dict[str, Any] = {"per_class": options.per_class, "paper_error": PAPER_ERROR}

    def run(name: str, X: Any, y: np.ndarray, test: Any, truth: np.ndarray, **arguments: Any) -> Scores:
        start = time.perf_counter()
        model = GCGPClassifier(search=None, random_state=options.seed, **arguments).fit(X, y)
        seconds = time.perf_counter() - start
        scores = Scores.of(model.predict_proba(test), truth)
        results[name] = {"error": scores.error, "nll": scores.nll, "ece": scores.ece, "seconds_fit": seconds}
        rows[name] = (
            f"error {scores.error:.2%}  NLL {scores.nll:.4f}  ECE {scores.ece:.4f}  fit {seconds:.0f} s"
        )
        print(name, rows[name], flush=True)
        return scores

    losses = {
        name: run(
            f"held-out: {name}",
            signals[fitted],
            labels[fitted],
            signals[held_out],
            labels[held_out],
            **arguments,
        ).nll
        for name, arguments in CANDIDATES.items()
    }
    results["chosen"] = best = min(losses, key=lambda name: losses[name])
    test_graphs = superpixels(test.images, random_state=options.seed + 1)
    for inference in ("closed-form", "natural-gradient"):
        run(
            f"test: {best}, {inference}",
            signals,
            labels,
            test_graphs,
            test.labels,
            inference=inference,
            **CANDIDATES[best],
        )
        results[inference] = results.pop(f"test: {best}, {inference}")
    results["peak_memory_gb"] = peak_memory()
    report(f"Superpixels, {options.per_class} per class", rows, results, options.json)


if __name__ == "__main__":
    main()
