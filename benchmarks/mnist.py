"""All of MNIST, 60,000 images of 784 vertices, in closed form: error, time and peak memory.

    GCGP_DATA=FOLDER python -m benchmarks.mnist --json FILE

Patches have 24 dimensions: three radii times eight directions, without position.
"""

from __future__ import annotations

import time
from dataclasses import asdict

from benchmarks.timing import command_line, report
from experiments.metrics import Scores, peak_memory
from gcgp import GCGPClassifier, Patch, Polar
from gcgp.datasets.images import load_mnist


def main() -> None:
    parser = command_line(__doc__, mnist=True)
    parser.add_argument("--inducing", type=int, default=750)
    options = parser.parse_args()
    train, test = load_mnist(options.data)
    start = time.perf_counter()
    model = GCGPClassifier(
        Polar([1, 3, 5], 8), patch=Patch(position=False), n_inducing=options.inducing, search=None
    )
    model.fit(train.images, train.labels)
    fitted = time.perf_counter()
    scores = Scores.of(model.predict_proba(test.images), test.labels)
    results = asdict(scores) | {
        "seconds_fit": fitted - start,
        "seconds_predict": time.perf_counter() - fitted,
        "peak_memory_gb": peak_memory(),
        "paper_error": 0.017,
    }
    rows = {
        "error": f"{scores.error:.2%}",
        "error in the paper": "1.7%",
        "NLL": f"{scores.nll:.4f}",
        "ECE": f"{scores.ece:.4f}",
        "seconds to fit": f"{results['seconds_fit']:.1f}",
        "seconds to predict": f"{results['seconds_predict']:.1f}",
        "peak memory": f"{results['peak_memory_gb']:.2f} GB",
    }
    title = f"MNIST, 60,000 images, 24-dimensional patches, {options.inducing} inducing patches"
    report(title, rows, results, options.json)


if __name__ == "__main__":
    main()
