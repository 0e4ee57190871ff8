"""Held-out likelihood with and without learning of parameters, on four kinds of data.

    GCGP_DATA=FOLDER python -m benchmarks.learned --json FILE

Digits as images, digits as superpixel graphs, articulated bodies as meshes (identity of persons, in new
poses), and regression of the slant of digits from their superpixel graphs. Default options with 300
inducing patches, with `learn=True` and without, over several seeds that draw training and test digits from
MNIST's training set. Log likelihoods are those of test data, in nats per signal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.timing import command_line, report
from experiments.metrics import Scores, peak_memory
from gcgp import GCGPClassifier, GCGPRegressor, GeometryVectors, articulated_bodies, superpixels
from gcgp.datasets.images import Images, load_mnist


@dataclass(frozen=True)
class Problem:
    """Training and test data."""

    train: Any
    targets: np.ndarray
    test: Any
    truth: np.ndarray


def main() -> None:
    parser = command_line(__doc__, mnist=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--train", type=int, default=500, help="training digits")
    parser.add_argument("--only", nargs="+", default=["digits", "superpixels", "bodies", "slant"])
    options = parser.parse_args()
    digits, _ = load_mnist(options.data)
    problems: dict[str, Callable[[int], Problem]] = {
        "digits": lambda seed: images(digits, options.train, seed),
        "superpixels": lambda seed: graphs(digits, options.train, seed),
        "bodies": persons,
        "slant": lambda seed: slants(digits, options.train, seed),
    }
    rows: dict[str, str] = {}
    results: dict[str, Any] = {"train": options.train, "seeds": options.seeds}
    for name in options.only:
        plain: list[float] = []
        learned: list[float] = []
        for seed in range(options.seeds):
            problem = problems[name](seed)
            for learn, likelihoods in ((None, plain), (True, learned)):
                start = time.perf_counter()
                likelihoods.append(held_out(problem, name == "slant", learn, seed))
                seconds = time.perf_counter() - start
                print(
                    f"{name}, seed {seed}, learn={learn}: {likelihoods[-1]:.4f}, {seconds:.0f} s", flush=True
                )
        gain = np.array(learned) - np.array(plain)
        results[name] = {"unlearned": plain, "learned": learned, "gain": float(gain.mean())}
        rows[name] = (
            f"unlearned {np.mean(plain):.4f}  learned {np.mean(learned):.4f}  gain {gain.mean():+.4f}"
        )
        print(name, rows[name], flush=True)
    results["peak_memory_gb"] = peak_memory()
    report("Held-out log likelihood, nats per signal", rows, results, options.json)


def held_out(problem: Problem, regression: bool, learn: bool | None, seed: int) -> float:
    """Mean log likelihood of the test data."""
    if regression:
        model = GCGPRegressor(n_inducing=300, search=None, learn=learn, random_state=seed)
        model.fit(problem.train, problem.targets)
        mean, std = model.predict(problem.test, return_std=True)
        density = -0.5 * ((problem.truth - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
        return float(density.mean())
    classifier = GCGPClassifier(n_inducing=300, search=None, learn=learn, random_state=seed)
    probabilities = classifier.fit(problem.train, problem.targets).predict_proba(problem.test)
    return -Scores.of(probabilities, np.searchsorted(classifier.classes_, problem.truth)).nll


def draw(digits: Images, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of `count` training digits and of 2,000 test digits, all of MNIST's training set."""
    order = np.random.default_rng(seed).permutation(len(digits.labels))
    return order[:count], order[count : count + 2_000]


def images(digits: Images, count: int, seed: int) -> Problem:
    train, test = draw(digits, count, seed)
    return Problem(digits.images[train], digits.labels[train], digits.images[test], digits.labels[test])


def graphs(digits: Images, count: int, seed: int) -> Problem:
    train, test = draw(digits, count, seed)
    signals = superpixels(digits.images[np.concatenate([train, test])], random_state=seed)
    return Problem(signals[:count], digits.labels[train], signals[count:], digits.labels[test])


def slants(digits: Images, count: int, seed: int) -> Problem:
    """The slant of each digit: the shear of its image, from second moments."""
    train, test = draw(digits, count, seed)
    problem = graphs(digits, count, seed)
    return Problem(problem.train, slant(digits.images[train]), problem.test, slant(digits.images[test]))


def slant(pictures: np.ndarray) -> np.ndarray:
    ink = pictures.reshape(len(pictures), 28, 28).astype(float)
    rows, columns = np.mgrid[:28, :28]
    total = ink.sum(axis=(1, 2))
    y, x = ((ink * axis).sum(axis=(1, 2)) / total for axis in (rows, columns))
    dy, dx = rows - y[:, None, None], columns - x[:, None, None]
    return (ink * dx * dy).sum(axis=(1, 2)) / (ink * dy**2).sum(axis=(1, 2))


def persons(seed: int) -> Problem:
    bodies = articulated_bodies(8, 6, vertices=500, random_state=seed)
    train, test = bodies.poses < 2, bodies.poses >= 2
    describe = GeometryVectors().fit([bodies.meshes[n] for n in np.flatnonzero(train)])
    return Problem(
        describe.transform([bodies.meshes[n] for n in np.flatnonzero(train)]),
        bodies.persons[train],
        describe.transform([bodies.meshes[n] for n in np.flatnonzero(test)]),
        bodies.persons[test],
    )


if __name__ == "__main__":
    main()
