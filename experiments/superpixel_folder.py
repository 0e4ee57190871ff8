"""The superpixel graphs of Monti et al. (2017), from the folder of PyG's `MNISTSuperpixels`.

Files are read with `torch.load(weights_only=True)`, which does not execute code. PyG's own class is not used:
if that fails, it loads the file without this restriction.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.data import Split, draw_per_class
from gcgp import Signals

RAW_FILE = "MNISTSuperpixels.pt"
PROCESSED_FILES = ("train_data.pt", "test_data.pt")
FIELDS = ("x", "edge_index", "pos", "y")
PUBLISHED_GRAPHS = (
    "superpixel graphs of Monti et al. (2017), as PyG distributes them; the paper's graphs are not public"
)

Graph = Mapping[str, Any]
"""`x` [V, 1], `edge_index` [2, E], `pos` [V, 2] and `y` [1]."""


def published_superpixels(folder: str | Path, per_class: int | None, seed: int) -> Split:
    """All training graphs, or `per_class` of each class drawn by the seed, and all test graphs.

    `folder` is the `root` of PyG's `MNISTSuperpixels`, with `raw/MNISTSuperpixels.pt`, or else
    `processed/train_data.pt` and `processed/test_data.pt`.
    """
    (train, labels), (test, truth) = _load(Path(folder))
    if per_class is not None:
        rows = np.sort(draw_per_class(labels, per_class, seed))
        train, labels = train[rows], labels[rows]
    return Split(train, labels, test, truth, (PUBLISHED_GRAPHS,))


@cache
def _load(folder: Path) -> tuple[tuple[Signals, np.ndarray], tuple[Signals, np.ndarray]]:
    raw, processed = folder / "raw" / RAW_FILE, [folder / "processed" / name for name in PROCESSED_FILES]
    if raw.is_file():
        content = load_tensors(raw)
        if not isinstance(content, Sequence) or len(content) != 2:
            raise ValueError(f"{raw}: expected a list of training graphs and one of test graphs")
        train, test = (_as_signals(raw, part) for part in content)
    elif all(path.is_file() for path in processed):
        train, test = (_as_signals(path, _separate(path, load_tensors(path))) for path in processed)
    else:
        names = " and ".join(f"processed/{name}" for name in PROCESSED_FILES)
        raise FileNotFoundError(f"{folder}: neither raw/{RAW_FILE} nor {names}")
    return train, test


def load_tensors(path: Path) -> Any:
    """The content of a file of torch: tensors in lists, tuples and dicts, and the name of PyG's `Data`."""
    allowed = []
    try:
        from torch_geometric.data import Data

        allowed.append(Data)  # its class, not an object, is part of processed files
    except ImportError:
        pass
    try:
        with torch.serialization.safe_globals(allowed):
            return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path}: not a file of tensors only, so it is not loaded ({reason})") from error


def _separate(path: Path, content: Any) -> Iterable[Graph]:
    """The graphs of a processed file: joined tensors, and where each graph starts."""
    if (
        not isinstance(content, tuple)
        or len(content) < 2
        or not all(isinstance(c, dict) for c in content[:2])
    ):
        raise ValueError(f"{path}: written by an old version of PyG; keep raw/{RAW_FILE} beside it")
    joined, starts = content[:2]
    for field in FIELDS:
        if joined.get(field) is None or starts.get(field) is None:
            raise ValueError(f"{path}: {field} is missing")
    for i in range(len(starts["y"]) - 1):
        parts = {field: slice(int(starts[field][i]), int(starts[field][i + 1])) for field in FIELDS}
        yield {
            field: joined[field][:, part] if field == "edge_index" else joined[field][part]
            for field, part in parts.items()
        }


def _as_signals(path: Path, graphs: Iterable[Graph]) -> tuple[Signals, np.ndarray]:
    values, edges, coordinates, labels = [], [], [], []
    for i, graph in enumerate(graphs):
        for field in FIELDS:
            if not isinstance(graph, Mapping) or not isinstance(graph.get(field), torch.Tensor):
                raise ValueError(f"{path}: graph {i}: {field} is missing")
        first, second = graph["edge_index"].numpy()
        one_direction = first < second
        values.append(graph["x"].numpy())
        edges.append(np.stack([first[one_direction], second[one_direction]], axis=1))
        coordinates.append(graph["pos"].numpy())
        labels.append(int(graph["y"].item()))
    try:
        return Signals.from_graphs(values, edges, coordinates=coordinates), np.array(labels)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
