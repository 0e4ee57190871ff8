"""What probabilities are worth: the gain in rejecting the least sure, and how foreign inputs stand out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from sklearn.metrics import roc_auc_score

from experiments.metrics import Scores
from experiments.models import Predict, Tested, Trained
from experiments.sets import Split, data_folder
from gcgp.datasets.images import find_idx, read_idx

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


def foreign_scores(model: Trained, split: Split, folder: str | None, seed: int) -> dict[str, float]:
    """For each kind of foreign images the area under the ROC curve in telling them from test images.

    They are told by the entropy of their probabilities and, where the model is a GP, by the standard
    deviation of its latent function: how little the training images say of them, whatever the class.
    """
    measures: dict[str, Predict] = {"entropy": lambda images: entropy(model.predict(images))}
    if model.deviation is not None:
        measures["deviation"] = model.deviation
    own = {name: measure(split.test[:FOREIGN]) for name, measure in measures.items()}
    areas = {}
    for kind, images in foreign_images(folder, split.test, seed):
        for name, measure in measures.items():
            scores = np.concatenate([own[name], measure(images)])
            truth = np.arange(len(scores)) >= len(own[name])
            areas[f"AUROC of {name}, {kind}"] = float(roc_auc_score(truth, scores))
    return areas


def worth(tested: Tested) -> dict[str, float]:
    """All of it, by name."""
    rejecting = {
        f"error, {share:.0%} rejected": error_of_the_rest(tested.probabilities, tested.truth, share)
        for share in REJECTED
    }
    brier = Scores.of(tested.probabilities, tested.truth).brier
    foreign = foreign_scores(tested.model, tested.split, tested.folder, tested.seed)
    return {"Brier": brier} | rejecting | foreign
