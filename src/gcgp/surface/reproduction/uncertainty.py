"""What probabilities are worth: the gain in rejecting the least sure, and how foreign inputs stand out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from sklearn.metrics import roc_auc_score

from gcgp.surface.datasets import find_idx, read_idx
from gcgp.surface.reproduction.models import Predict, Tested
from gcgp.surface.reproduction.sets import Split, data_folder

REJECTED = (0.05, 0.1, 0.2)
FOREIGN = 2_000
"""Foreign inputs of each kind, and test signals beside them, at most."""
SYSTEM = Path("/usr/share/datasets")
"""Where Debian's package `dataset-fashion-mnist` puts its files."""
KINDS = {"Fashion-MNIST": "fashion-mnist", "KMNIST": "kmnist"}
"""Sets of other images, and the folder each is looked for in."""


def entropy(probabilities: Float[np.ndarray, "N C"]) -> Float[np.ndarray, "N"]:
    """How unsure: 0 for a class that is certain, log C for no idea.

    >>> entropy(np.array([[1.0, 0.0], [0.5, 0.5]])).round(3).tolist()
    [0.0, 0.693]
    """
    p = np.clip(probabilities, 1e-300, 1.0)
    return np.abs((p * np.log(p)).sum(axis=1))


def error_of_the_rest(
    probabilities: Float[np.ndarray, "N C"], truth: Int[np.ndarray, "N"], rejected: float
) -> float:
    """The error that is left once a share of the signals, the least sure, is rejected."""
    kept = np.argsort(-probabilities.max(axis=1), kind="stable")[: round((1 - rejected) * len(truth))]
    return float((probabilities[kept].argmax(axis=1) != truth[kept]).mean())


def foreign_images(
    folder: str | None, like: Float[np.ndarray, "N H W"], seed: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Images that are no digits: noise, digits on their side, and other sets where they are found."""
    some = like[:FOREIGN]
    rng = np.random.default_rng(seed)
    yield "noise", rng.random(some.shape).astype(np.float32)
    yield "turned by 90°", np.ascontiguousarray(np.rot90(some, axes=(1, 2)))
    for name, place in KINDS.items():
        path = None
        for parent in (data_folder(folder), SYSTEM):
            if path is None and parent is not None:
                path = find_idx(parent / place, "t10k-images-idx3-ubyte")
        if path is not None:
            yield name, read_idx(path)[: len(some)].astype(np.float32) / 255


def foreign_scores(predict: Predict, split: Split, folder: str | None, seed: int) -> dict[str, float]:
    """For each kind of foreign images the area under the ROC curve that entropy has in telling them apart."""
    own = entropy(predict(split.test[:FOREIGN]))
    areas = {}
    for name, images in foreign_images(folder, split.test, seed):
        other = entropy(predict(images))
        truth = np.repeat([0, 1], [len(own), len(other)])
        areas[f"AUROC, {name}"] = float(roc_auc_score(truth, np.concatenate([own, other])))
    return areas


def worth(tested: Tested) -> dict[str, float]:
    """All of it, by name."""
    rejecting = {
        f"error, {share:.0%} rejected": error_of_the_rest(tested.probabilities, tested.truth, share)
        for share in REJECTED
    }
    return rejecting | foreign_scores(tested.predict, tested.split, tested.folder, tested.seed)
