"""Data of the table `few-labels`: images and meshes with few labels, and everything else for testing."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np

from experiments.data import Split, draw_per_class, find_dataset
from experiments.runs import Run, Settings, print_progress
from gcgp import Mesh, load_faust, load_mesh_folder
from gcgp.datasets.images import data_folder, find_idx, load_mnist
from gcgp.datasets.mesh_folders import faust_files
from gcgp.mesh.scale import normalized

IMAGE_DATASETS = ("MNIST", "Fashion-MNIST")
MESH_DATASETS = ("FAUST", "TOSCA")
LABELS = (100, 300, 1_000, 5_000)
"""Labels of images, ten classes together."""
LABELS_PER_CLASS = (1, 3, 5)
"""Labels of meshes."""
VERTICES = 1_000
"""Vertices per mesh by default."""
TRAINING_IMAGES = "train-images-idx3-ubyte"
UNIT_AREA = "meshes are scaled to area 1, so that no model uses their size"


def is_image_condition(condition: str) -> bool:
    """Whether the condition is one of images."""
    return condition.startswith(IMAGE_DATASETS)


def is_mesh_condition(condition: str) -> bool:
    """Whether the condition is one of meshes."""
    return condition.startswith(MESH_DATASETS)


def conditions(settings: Settings) -> list[str]:
    """All conditions whose data are available, such as `MNIST, 100 labels`; a note on stderr for others."""
    per_class, vertices = settings.per_class, settings.vertices or VERTICES
    labels = LABELS if per_class is None else (10 * per_class,)
    labels_per_class = LABELS_PER_CLASS if per_class is None else (per_class,)
    available: list[str] = []
    for dataset in (*IMAGE_DATASETS, *MESH_DATASETS):
        try:
            find_data(dataset, settings.data)
        except FileNotFoundError as error:
            print_progress(f"{dataset} skipped: {error}")
            continue
        if dataset in IMAGE_DATASETS:
            available += [f"{dataset}, {count} labels" for count in labels]
        else:
            available += [f"{dataset}, {count} per class, {vertices} vertices" for count in labels_per_class]
    if not available:
        raise FileNotFoundError("no data for this table; see the notes above and experiments/README.md")
    return available


def find_data(dataset: str, option: str | None) -> Path:
    """The folder of a dataset; a FileNotFoundError if the user does not have it."""
    if dataset == "Fashion-MNIST":
        folder = find_dataset(option, "fashion-mnist", TRAINING_IMAGES)
        if folder is None:
            raise FileNotFoundError(f"no {TRAINING_IMAGES}[.gz] in the subfolder fashion-mnist")
        return folder
    root = data_folder(option, dataset)
    if dataset == "MNIST" and not any(find_idx(root / part, TRAINING_IMAGES) for part in ("mnist", "")):
        raise FileNotFoundError(f"no {TRAINING_IMAGES}[.gz] in {root} or its subfolder mnist")
    if dataset == "FAUST":
        faust_files(root)
    if dataset == "TOSCA":
        root /= "tosca"
        if not any(root.glob("*.off")):
            raise FileNotFoundError(f"no .off files in {root}")
    return root


def split(run: Run) -> Split:
    """Training data drawn by the seed, as many of each class; all test images, or all other meshes."""
    dataset, count, *_ = run.condition.split(", ")
    folder, number = find_data(dataset, run.settings.data), int(count.split()[0])
    if dataset in IMAGE_DATASETS:
        train, test = load_mnist(folder)
        rows = np.sort(draw_per_class(train.labels, number // len(np.unique(train.labels)), run.seed))
        return Split(train.images[rows], train.labels[rows], test.images, test.labels)
    meshes, labels = load_meshes(dataset, folder, run.settings.vertices or VERTICES)
    rows = draw_meshes(labels, number, run.seed)
    others = np.setdiff1d(np.arange(len(labels)), rows)
    return Split(
        [meshes[i] for i in rows], labels[rows], [meshes[i] for i in others], labels[others], (UNIT_AREA,)
    )


@cache
def load_meshes(dataset: str, folder: Path, vertices: int) -> tuple[list[Mesh], np.ndarray]:
    """All meshes of FAUST, labeled by person, or of TOSCA, labeled by file name, at area 1."""
    data = (
        load_faust(folder, vertices)
        if dataset == "FAUST"
        else load_mesh_folder(folder, labels=class_of_file, vertices=vertices)
    )
    return [normalized(mesh, by="area") for mesh in data.meshes], data.labels


def class_of_file(name: str) -> str:
    """The class in a file name of TOSCA: what is left without digits and underscores.

    >>> class_of_file("cat10"), class_of_file("8_gorilla_01")
    ('cat', 'gorilla')
    """
    return re.sub(r"[\d_]", "", name)


def draw_meshes(labels: np.ndarray, per_class: int, seed: int) -> np.ndarray:
    """Random indices of `per_class` meshes of each class; of a smaller class, all but one for testing."""
    rows = draw_per_class(labels, per_class, seed)
    for name, count in zip(*np.unique(labels, return_counts=True), strict=True):
        if count == 1:
            raise ValueError(f"class {str(name)!r} has one mesh: none is left for testing")
        drawn = rows[labels[rows] == name]
        if len(drawn) == count:
            rows = rows[rows != drawn[-1]]
    return np.sort(rows)
