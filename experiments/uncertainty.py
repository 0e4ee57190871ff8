"""Metrics of uncertainty: errors after rejection of uncertain signals, and detection of other inputs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int
from sklearn.metrics import roc_auc_score

from experiments.data import Split, find_dataset
from experiments.metrics import Scores
from experiments.models import Evaluation, Predict, TrainedModel
from gcgp.datasets.images import find_idx, read_idx

REJECTED_SHARES = (0.05, 0.1, 0.2)
MAX_IMAGES_PER_SOURCE = 2_000
"""Out-of-distribution images per source, and as many test images."""
TEST_IMAGES = "t10k-images-idx3-ubyte"
OTHER_DATASETS = {"Fashion-MNIST": "fashion-mnist", "KMNIST": "kmnist"}
"""Datasets of other images, and the folder in which each is expected."""


def entropy(probabilities: Float[np.ndarray, "N C"]) -> Float[np.ndarray, "N"]:
    """Entropy of the predicted class: from 0 (certain) to log C (uniform).

    >>> entropy(np.array([[1.0, 0.0], [0.5, 0.5]])).round(3).tolist()
    [0.0, 0.693]
    """
    p = np.clip(probabilities, 1e-300, 1.0)
    return np.abs((p * np.log(p)).sum(axis=1))


def error_after_rejection(
    probabilities: Float[np.ndarray, "N C"], truth: Int[np.ndarray, "N"], rejected: float
) -> float:
    """The error that remains if this share of the signals, those with the least confidence, is rejected."""
    order = np.argsort(-probabilities.max(axis=1), kind="stable")
    accepted = order[: round((1 - rejected) * len(truth))]
    return float((probabilities[accepted].argmax(axis=1) != truth[accepted]).mean())


def out_of_distribution_images(
    folder: str | None, digits: Float[np.ndarray, "N H W"], seed: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Noise, rotated digits, and images of other datasets that are available."""
    some = digits[:MAX_IMAGES_PER_SOURCE]
    yield "noise", np.random.default_rng(seed).random(some.shape).astype(np.float32)
    yield "rotated by 90°", np.ascontiguousarray(np.rot90(some, axes=(1, 2)))
    for name, subfolder in OTHER_DATASETS.items():
        source = find_dataset(folder, subfolder, TEST_IMAGES)
        path = None if source is None else find_idx(source, TEST_IMAGES)
        if path is not None:
            yield name, read_idx(path)[: len(some)].astype(np.float32) / 255


def detection_scores(model: TrainedModel, split: Split, folder: str | None, seed: int) -> dict[str, float]:
    """Area under the ROC curve for separating out-of-distribution images from test images, per source.

    The score of an image is the entropy of its prediction or, for a GP, the standard deviation of the latent
    function.
    """
    measures: dict[str, Predict] = {"entropy": lambda images: entropy(model.predict(images))}
    if model.latent_std is not None:
        measures["latent std"] = model.latent_std
    of_digits = {name: measure(split.test[:MAX_IMAGES_PER_SOURCE]) for name, measure in measures.items()}
    areas = {}
    for source, images in out_of_distribution_images(folder, split.test, seed):
        for name, measure in measures.items():
            scores = np.concatenate([of_digits[name], measure(images)])
            outside = np.arange(len(scores)) >= len(of_digits[name])
            areas[f"AUROC of {name}, {source}"] = float(roc_auc_score(outside, scores))
    return areas


def uncertainty_metrics(evaluation: Evaluation) -> dict[str, float]:
    """Brier score, errors after rejection, and detection of out-of-distribution images, by name."""
    probabilities, truth = evaluation.probabilities, evaluation.truth
    rejection = {
        f"error, {share:.0%} rejected": error_after_rejection(probabilities, truth, share)
        for share in REJECTED_SHARES
    }
    detection = detection_scores(evaluation.model, evaluation.split, evaluation.folder, evaluation.seed)
    return {"Brier": Scores.of(probabilities, truth).brier} | rejection | detection
