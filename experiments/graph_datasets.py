"""Data of the table `graphs`: classified graphs in the text files of the TU collection, by folds."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Int, Num
from sklearn.model_selection import StratifiedKFold

from experiments.data import Split
from experiments.runs import Run, Settings, print_progress
from gcgp import Signals
from gcgp.datasets.images import data_folder

GRAPH_DATASETS = ("MUTAG", "PTC_MR", "ENZYMES", "PROTEINS", "NCI1")
FOLDS = 10
SUBFOLDER = "tu"


def conditions(settings: Settings) -> list[str]:
    """The datasets that are available; a note on stderr for others."""
    available = []
    for name in GRAPH_DATASETS:
        try:
            find_dataset(name, settings.data)
        except FileNotFoundError as error:
            print_progress(f"{name} skipped: {error}")
            continue
        available.append(name)
    if not available:
        raise FileNotFoundError("no data for this table; see the notes above and experiments/README.md")
    return available


def split(run: Run) -> Split:
    """One of ten stratified folds for testing, by the seed, and the others for training."""
    signals, labels = load_graphs(find_dataset(run.condition, run.settings.data))
    if run.seed >= FOLDS:
        raise ValueError(f"seed {run.seed}: there are {FOLDS} folds; choose --seeds of at most {FOLDS}")
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(np.zeros(len(labels)), labels)
    train, test = list(folds)[run.seed]
    return Split(signals[train], labels[train], signals[test], labels[test])


def find_dataset(name: str, option: str | None) -> Path:
    """The folder of a dataset; a FileNotFoundError if the user does not have it."""
    folder = data_folder(option, "graphs") / SUBFOLDER / name
    if not (folder / f"{name}_A.txt").is_file():
        raise FileNotFoundError(f"no {name}_A.txt in the subfolder {SUBFOLDER}/{name}")
    return folder


@cache
def load_graphs(folder: Path) -> tuple[Signals, Int[np.ndarray, "N"]]:
    """The graphs of a folder with their labels; labels of vertices (one-hot) and attributes are values.

    If vertices have neither, their values are degrees.
    """
    graph_of = _numbers(folder, "graph_indicator").astype(np.int64)[:, 0] - 1
    labels = _numbers(folder, "graph_labels").astype(np.int64)[:, 0]
    pairs = _numbers(folder, "A").astype(np.int64) - 1
    if (np.diff(graph_of) < 0).any() or graph_of[0] != 0 or graph_of[-1] != len(labels) - 1:
        raise ValueError(f"{folder.name}: vertices are not in the order of the {len(labels)} graphs")
    if pairs.min(initial=0) < 0 or pairs.max(initial=-1) >= len(graph_of):
        raise ValueError(f"{folder.name}: an edge has a vertex outside 1 to {len(graph_of)}")
    parts = []
    if _file(folder, "node_labels").is_file():
        names = _numbers(folder, "node_labels")[:, 0]
        parts.append((names[:, None] == np.unique(names)).astype(np.float64))
    if _file(folder, "node_attributes").is_file():
        parts.append(_numbers(folder, "node_attributes"))
    if not parts:
        parts.append(np.bincount(pairs[:, 0], minlength=len(graph_of))[:, None].astype(np.float64))
    values = np.concatenate(parts, axis=1)
    starts = np.searchsorted(graph_of, np.arange(len(labels) + 1))
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]  # each edge is listed in both directions
    pairs = pairs[np.argsort(graph_of[pairs[:, 0]], kind="stable")]
    edges = np.split(pairs, np.searchsorted(graph_of[pairs[:, 0]], np.arange(1, len(labels))))
    signals = Signals.from_graphs(
        np.split(values, starts[1:-1]),
        [part - start for part, start in zip(edges, starts[:-1], strict=True)],
    )
    return signals, labels


def _file(folder: Path, part: str) -> Path:
    return folder / f"{folder.name}_{part}.txt"


def _numbers(folder: Path, part: str) -> Num[np.ndarray, "rows columns"]:
    return np.loadtxt(_file(folder, part), delimiter=",", ndmin=2)
