"""Who is it? Persons are told apart by the shape of their bodies, in poses that were never seen.

    python examples/meshes.py --picture evidence.png

Bodies are drawn, decimated, described by geometry vectors and classified by a graph convolutional GP. The
picture shows which parts of the surface spoke for a person, and which against.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from sklearn.pipeline import make_pipeline

from experiments.metrics import Scores
from gcgp import GCGPClassifier
from gcgp.datasets.bodies import articulated_bodies
from gcgp.descriptors.spectral import GeometryVectors
from gcgp.mesh.decimation import decimate
from gcgp.plot.meshes import draw_mesh_evidence

SHOWN = 4
"""Bodies in the picture: the surest and the least sure, half each."""

seconds: dict[str, float] = {}


def main() -> None:
    """Learn persons in half of the poses, test on the other half, and report."""
    options = arguments()

    with stage("draw"):
        bodies = articulated_bodies(
            options.persons, options.poses, vertices=3 * options.vertices, random_state=options.seed
        )

    # Scans have more vertices than the model needs; decimation keeps the shape.
    with stage("decimate"):
        meshes = [decimate(mesh, options.vertices) for mesh in bodies.meshes]

    # All persons in the even poses are learned, all persons in the odd poses are tested.
    learned = np.flatnonzero(bodies.poses % 2 == 0)
    tested = np.flatnonzero(bodies.poses % 2 == 1)
    model = make_pipeline(GeometryVectors(), GCGPClassifier(random_state=options.seed))
    with stage("describe and fit"):
        model.fit([meshes[n] for n in learned], bodies.persons[learned])
    with stage("describe and predict"):
        probabilities = model.predict_proba([meshes[n] for n in tested])
    scores = Scores.of(probabilities, bodies.persons[tested])

    if options.picture:
        with stage("picture"):
            order = np.argsort(probabilities.max(axis=1))
            rows = np.concatenate([order[::-1][: SHOWN // 2], order[: SHOWN // 2]])
            shown = [meshes[n] for n in tested[rows]]
            describe, classify = model[:-1], model[-1]
            draw_mesh_evidence(
                shown,
                probabilities[rows],
                classify.evidence(describe.transform(shown)),
                list(model.classes_),
                list(bodies.persons[tested[rows]]),
                options.picture,
            )

    print(
        f"{options.persons} persons, {len(learned)} bodies to learn from, {len(tested)} to test, "
        f"{options.vertices} vertices each"
    )
    print(f"  {'error':<30}{scores.error:>8.1%}")
    print(f"  {'NLL':<30}{scores.nll:>8.3f}")
    for name, value in seconds.items():
        print(f"  {'seconds: ' + name:<30}{value:>8.1f}")
    print(f"  {'seconds: total':<30}{sum(seconds.values()):>8.1f}")
    if options.json:
        report = {"error": scores.error, "nll": scores.nll, "seconds": seconds, "seed": options.seed}
        options.json.write_text(json.dumps(report, indent=2) + "\n")


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Take the time."""
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--persons", type=int, default=8, help="number of persons, the classes (8)")
    parser.add_argument("--poses", type=int, default=8, help="poses of each person, two at least (8)")
    parser.add_argument("--vertices", type=int, default=500, help="vertices of a mesh once decimated (500)")
    parser.add_argument("--picture", type=Path, metavar="PNG", help="draw evidence on bodies to this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write scores and seconds to this file")
    parser.add_argument("--seed", type=int, default=0, help="of the bodies and of the model (0)")
    options = parser.parse_args()
    if options.persons < 2 or options.poses < 2:
        parser.error(f"two persons in two poses at least, not {options.persons} in {options.poses}")
    return options


if __name__ == "__main__":
    main()
