"""Identify persons by the shapes of their bodies, in poses that were not in the training data.

    python examples/meshes.py --picture evidence.png

Bodies are generated, decimated, and classified by a graph convolutional GP, which selects a descriptor. The
picture shows which parts of the surface support or oppose a person.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from sklearn.metrics import accuracy_score, log_loss

from gcgp import GCGPClassifier, articulated_bodies, decimate, plot_mesh_evidence

PLOTTED_BODIES = 4

seconds: dict[str, float] = {}


def main() -> None:
    """Train on all persons in half of the poses, test on the other half, and report."""
    options = arguments()
    with stage("generate"):
        bodies = articulated_bodies(
            options.persons, options.poses, vertices=3 * options.vertices, random_state=options.seed
        )
    # Scans have more vertices than the model needs; decimation keeps the shape.
    with stage("decimate"):
        meshes = [decimate(mesh, options.vertices) for mesh in bodies.meshes]

    train, test = np.flatnonzero(bodies.poses % 2 == 0), np.flatnonzero(bodies.poses % 2 == 1)
    model = GCGPClassifier(random_state=options.seed)
    with stage("describe and fit"):
        model.fit([meshes[n] for n in train], bodies.persons[train])
    with stage("describe and predict"):
        probabilities = model.predict_proba([meshes[n] for n in test])
    truth = bodies.persons[test]
    error = 1 - accuracy_score(truth, model.classes_[probabilities.argmax(axis=1)])
    nll = log_loss(truth, probabilities, labels=model.classes_)

    if options.picture:
        with stage("plot"):
            order = np.argsort(probabilities.max(axis=1))
            rows = np.concatenate([order[::-1][: PLOTTED_BODIES // 2], order[: PLOTTED_BODIES // 2]])
            plot_mesh_evidence(model, [meshes[n] for n in test[rows]], truth[rows], options.picture)

    print(
        f"{options.persons} persons, {len(train)} training bodies, {len(test)} test bodies, "
        f"{options.vertices} vertices each, {model.descriptor_}"
    )
    print(f"  {'error':<30}{error:>8.1%}")
    print(f"  {'NLL':<30}{nll:>8.3f}")
    for name, value in seconds.items():
        print(f"  {'seconds: ' + name:<30}{value:>8.1f}")
    print(f"  {'seconds: total':<30}{sum(seconds.values()):>8.1f}")
    if options.json:
        report = {"error": error, "nll": nll, "seconds": seconds, "seed": options.seed}
        options.json.write_text(json.dumps(report, indent=2) + "\n")


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Measure the time of a stage."""
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--persons", type=int, default=8, help="number of persons (8)")
    parser.add_argument("--poses", type=int, default=8, help="poses per person, at least two (8)")
    parser.add_argument("--vertices", type=int, default=500, help="vertices per mesh after decimation (500)")
    parser.add_argument("--picture", type=Path, metavar="PNG", help="plot evidence on bodies to this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write scores and seconds to this file")
    parser.add_argument("--seed", type=int, default=0, help="seed of the bodies and of the model (0)")
    options = parser.parse_args()
    if options.persons < 2 or options.poses < 2:
        parser.error(f"expected at least 2 persons and 2 poses, got {options.persons} and {options.poses}")
    return options


if __name__ == "__main__":
    main()
