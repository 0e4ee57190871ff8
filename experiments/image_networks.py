"""A small CNN: two convolutions of 5 × 5 pixels with pooling, and a hidden layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from experiments import networks
from experiments.models import Fit, TrainedModel
from experiments.networks import Batches, probabilities, train_network, training_epochs

FEW_LABELS_HELD_OUT_SHARE = 0.2
MAX_SHIFT_PIXELS = 2
"""Of distorted training images, in both directions."""


def build_network(images: Float[np.ndarray, "N H W"], classes: int) -> nn.Module:
    """The CNN for images of this size."""
    _, height, width = images.shape
    first, second = networks.CHANNELS[:2]
    return nn.Sequential(
        nn.Conv2d(1, first, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(second * (height // 4) * (width // 4), networks.HIDDEN_UNITS),
        nn.ReLU(),
        nn.Dropout(networks.ON_GRAPHS.dropout),
        nn.Linear(networks.HIDDEN_UNITS, classes),
    )


def fit_image_network(
    train: Float[np.ndarray, "N H W"], labels: np.ndarray, inducing: int | None, seed: int
) -> TrainedModel:
    """The CNN, for many labels: the epoch with the lowest held-out NLL is used."""
    classes, codes = np.unique(labels, return_inverse=True)
    config = networks.ON_GRAPHS
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build_network(train, len(classes))
        note = train_network(model, batches_of(train), codes, seed, config.max_batch_size, config.min_steps)
    return _as_trained(model, note)


def few_label_network(shifted: bool) -> Fit:
    """The CNN, for few labels: held-out images select the number of epochs, then all images train it.

    With `shifted`, each training image is shifted by up to two pixels in each step.
    """

    def fit(train: Any, labels: np.ndarray, inducing: int | None, seed: int) -> TrainedModel:
        classes, codes = np.unique(labels, return_inverse=True)
        batch, config = batches_of(train), networks.ON_GRAPHS
        size = config.max_batch_size
        rng = np.random.default_rng(seed)
        distort = batches_of(train, lambda images: shift(images, rng)) if shifted else batch
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            note = train_network(
                build_network(train, len(classes)),
                batch,
                codes,
                seed,
                size,
                config.min_steps,
                held_out_share=FEW_LABELS_HELD_OUT_SHARE,
                distort=distort,
            )
            torch.manual_seed(seed)
            model = build_network(train, len(classes))
            everything, last = np.arange(len(codes)), note["best_epoch"]
            epochs = training_epochs(model, distort, codes, everything, seed, size, note["epochs"])
            next(epoch for epoch in epochs if epoch == last)
        return _as_trained(model, note)

    return fit


def shift(images: Float[np.ndarray, "N H W"], rng: np.random.Generator) -> Float[np.ndarray, "N H W"]:
    """Each image shifted by a random number of pixels in both directions; zeros move in."""
    count, height, width = images.shape
    padded = np.pad(images, ((0, 0), *[(MAX_SHIFT_PIXELS, MAX_SHIFT_PIXELS)] * 2))
    starts = rng.integers(2 * MAX_SHIFT_PIXELS + 1, size=(count, 2))
    return np.stack(
        [image[y : y + height, x : x + width] for image, (y, x) in zip(padded, starts, strict=True)]
    )


def batches_of(
    images: np.ndarray, change: Callable[[np.ndarray], np.ndarray] = lambda images: images
) -> Batches:
    """The inputs of the network for rows of images."""
    return lambda rows: (torch.from_numpy(change(images[rows])[:, None].astype(np.float32)),)


def _as_trained(model: nn.Module, note: dict[str, Any]) -> TrainedModel:
    def predict(images: np.ndarray) -> np.ndarray:
        return probabilities(model, batches_of(images), len(images), networks.ON_GRAPHS.max_batch_size)

    return TrainedModel(predict, note)
