"""Test error on MNIST as superpixel graphs, with few training digits per class and default options.

    GCGP_DATA=FOLDER python -m benchmarks.superpixels --per-class 100 --draws 5 --json FILE

Each draw has different training digits and is tested on all 10,000 test digits. Superpixels are computed by
the paper's recipe: the authors' graphs are not public.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.timing import command_line, report
from experiments.data import draw_per_class
from experiments.metrics import Scores, peak_memory
from gcgp import GCGPClassifier, superpixels
from gcgp.datasets.images import load_mnist

PAPER_ERRORS = {100: 0.137, 500: 0.083, 1000: 0.063, 6000: 0.042}


def main() -> None:
    parser = command_line(__doc__, mnist=True)
    parser.add_argument("--per-class", type=int, default=100)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--inducing", type=int, default=750)
    options = parser.parse_args()
    train, test = load_mnist(options.data)
    start = time.perf_counter()
    test_graphs = superpixels(test.images, random_state=1)
    print(f"superpixels of {len(test_graphs)} test digits: {time.perf_counter() - start:.1f} s", flush=True)
    runs = []
    for draw in range(options.draws):
        chosen = draw_per_class(train.labels, options.per_class, draw)
        signals = superpixels(train.images[chosen], random_state=draw)
        start = time.perf_counter()
        model = GCGPClassifier(n_inducing=options.inducing, search=None, random_state=draw)
        model.fit(signals, train.labels[chosen])
        fitted = time.perf_counter()
        scores = Scores.of(model.predict_proba(test_graphs), test.labels)
        runs.append((scores, fitted - start, time.perf_counter() - fitted))
        print(f"draw {draw}: {scores}, fit {runs[-1][1]:.1f} s, predict {runs[-1][2]:.1f} s", flush=True)
    errors = np.array([scores.error for scores, _, _ in runs])
    results = {
        "per_class": options.per_class,
        "error": float(errors.mean()),
        "error_std": float(errors.std(ddof=1)) if len(errors) > 1 else 0.0,
        "errors": errors.tolist(),
        "nll": float(np.mean([scores.nll for scores, _, _ in runs])),
        "ece": float(np.mean([scores.ece for scores, _, _ in runs])),
        "seconds_fit": float(np.mean([seconds for _, seconds, _ in runs])),
        "seconds_predict": float(np.mean([seconds for _, _, seconds in runs])),
        "peak_memory_gb": peak_memory(),
        "paper_error": PAPER_ERRORS.get(options.per_class),
    }
    rows = {
        "error, mean": f"{results['error']:.2%}",
        "error, standard deviation": f"{results['error_std']:.2%}",
        "error in the paper": "–" if results["paper_error"] is None else f"{results['paper_error']:.1%}",
        "NLL": f"{results['nll']:.4f}",
        "ECE": f"{results['ece']:.4f}",
        "seconds to fit": f"{results['seconds_fit']:.1f}",
        "seconds to predict": f"{results['seconds_predict']:.1f}",
    }
    title = f"Superpixels, {options.per_class} per class, {options.draws} draws"
    report(f"{title}, {options.inducing} inducing patches", rows, results, options.json)


if __name__ == "__main__":
    main()
