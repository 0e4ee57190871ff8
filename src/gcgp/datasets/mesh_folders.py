"""Meshes with labels from a folder of files, and FAUST from the user's folder."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped
from tqdm import tqdm

from gcgp.datasets.images import data_folder
from gcgp.mesh import Mesh
from gcgp.mesh.decimation import decimate
from gcgp.mesh.files.loading import READERS, load_mesh

FAUST_SUBFOLDERS = ("", "registrations", "training/registrations", "shapes")


@dataclass(frozen=True, eq=False)
class LabeledMeshes:
    """Meshes with their labels."""

    meshes: list[Mesh]
    labels: Shaped[np.ndarray, "N"]

    def __len__(self) -> int:
        return len(self.meshes)


@dataclass(frozen=True, eq=False)
class FaustMeshes(LabeledMeshes):
    """The meshes of FAUST; the labels are the subjects, 0 to 9, each in the same ten poses."""

    poses: Int[np.ndarray, "N"]


def load_mesh_folder(
    folder: str | Path,
    labels: str | Path | Callable[[str], Any] | None = None,
    vertices: int | None = None,
) -> LabeledMeshes:
    """All meshes of a folder, sorted by file name, with their labels.

    `labels` is None if each subfolder contains the meshes of one class and its name is the label; a CSV file
    with rows `file,label`, with or without that header and with or without file endings, whose labels become
    numbers if all of them are; or a function of the file name without its ending. `vertices` decimates each
    mesh to that many vertices (see `decimate`).
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    files = _mesh_files(folder)
    if labels is None:
        if files:
            raise ValueError(f"{files[0]}: it has no label, because it is in no subfolder of {folder}")
        files = [file for part in sorted(folder.iterdir()) if part.is_dir() for file in _mesh_files(part)]
        values = [file.parent.name for file in files]
    elif callable(labels):
        values = [labels(file.stem) for file in files]
    else:
        values = _csv_labels(Path(labels), files)
    if not files:
        searched = "its subfolders" if labels is None else "it"
        raise ValueError(f"{folder}: no meshes ({', '.join(READERS)}) in {searched}")
    return LabeledMeshes(_load(files, vertices), np.array(values))


def load_faust(folder: str | Path | None = None, vertices: int | None = None) -> FaustMeshes:
    """The 100 training registrations of FAUST (Bogo et al. 2014), from files tr_reg_000 to tr_reg_099.

    They are .ply or .off files in `folder`, by default the folder in the environment variable GCGP_DATA, in
    its subfolder `faust`, or in the subfolders `registrations`, `training/registrations` and `shapes` of
    these. The authors provide the data to registered users, for research only. `vertices` decimates each
    mesh to that many vertices (see `decimate`).
    """
    subjects, poses = np.divmod(np.arange(100), 10)
    return FaustMeshes(_load(faust_files(folder), vertices), subjects, poses)


def faust_files(folder: str | Path | None = None) -> list[Path]:
    """The 100 files that `load_faust` reads, in order; a FileNotFoundError that names the missing ones."""
    root = data_folder(folder, "FAUST")
    found = {f"tr_reg_{i:03}": _find_faust(root, f"tr_reg_{i:03}") for i in range(100)}
    missing = [name for name, file in found.items() if file is None]
    if missing:
        names = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise FileNotFoundError(f"{root}: no .ply or .off file for {names}")
    return [file for file in found.values() if file]


def _find_faust(folder: Path, name: str) -> Path | None:
    files = (
        folder / parent / subfolder / (name + ending)
        for parent in ("", "faust")
        for subfolder in FAUST_SUBFOLDERS
        for ending in (".ply", ".off")
    )
    return next((file for file in files if file.is_file()), None)


def _mesh_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in READERS and file.is_file())


def _load(files: Sequence[Path], vertices: int | None) -> list[Mesh]:
    loaded = map(load_mesh, tqdm(files, desc="meshes", unit=" meshes", delay=1, disable=None))
    return [mesh if vertices is None else decimate(mesh, vertices, cache=True) for mesh in loaded]


def _csv_labels(path: Path, files: Sequence[Path]) -> list[Any]:
    """The label of each file; each file must have one row and each row one file."""
    with path.open(newline="", encoding="utf-8-sig") as lines:
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines) if row]
    if rows and [cell.lower() for cell in rows[0]] == ["file", "label"]:
        rows = rows[1:]
    labels: dict[Path, str] = {}
    for row in rows:
        if len(row) != 2:
            raise ValueError(f"{path}: the row {','.join(row)!r} has {len(row)} columns, not file and label")
        matches = [file for file in files if row[0] in (file.name, file.stem)]
        if len(matches) != 1:
            raise ValueError(f"{path}: {len(matches)} files for {row[0]!r}, whose label is {row[1]!r}")
        if matches[0] in labels:
            raise ValueError(f"{path}: {row[0]!r} has two labels, {labels[matches[0]]!r} and {row[1]!r}")
        labels[matches[0]] = row[1]
    for file in files:
        if file not in labels:
            raise ValueError(f"{path}: no label for {file.name}")
    for number in (int, float):
        try:
            return [number(labels[file]) for file in files]
        except ValueError:
            pass
    return [labels[file] for file in files]
