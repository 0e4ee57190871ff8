"""Meshes with labels: from a folder of files, and FAUST from the user's folder."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped
from tqdm import tqdm

from gcgp.datasets.images import DATA_VARIABLE
from gcgp.mesh.decimation import decimate
from gcgp.mesh.files.loading import READERS, load_mesh
from gcgp.mesh.mesh import Mesh

FAUST_PLACES = ("", "registrations", "training/registrations", "shapes")
"""Subfolders in which FAUST's files may be."""


@dataclass(frozen=True, eq=False)
class LabeledMeshes:
    """Meshes with their labels."""

    meshes: list[Mesh]
    labels: Shaped[np.ndarray, "N"]

    def __len__(self) -> int:
        return len(self.meshes)


@dataclass(frozen=True, eq=False)
class FaustMeshes(LabeledMeshes):
    """The meshes of FAUST; the labels are the subjects, 0 to 9, and each subject takes the same ten poses."""

    poses: Int[np.ndarray, "N"]


def load_mesh_folder(
    folder: str | Path,
    labels: str | Path | Callable[[str], Any] | None = None,
    vertices: int | None = None,
) -> LabeledMeshes:
    """All meshes of a folder, sorted by the names of their files, with a label each.

    `labels` says where the labels come from. None: each subfolder holds the meshes of one class, and its
    name is their label. A CSV file: rows of `file,label`, with or without that header, files with or
    without their endings; the labels become numbers if all of them are. A function: of the file's name
    without its ending. `vertices` decimates each mesh to that many (see `decimate`).
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder")
    found: list[Any]
    if labels is None:
        files = [file for place in sorted(folder.iterdir()) if place.is_dir() for file in _mesh_files(place)]
        found = [file.parent.name for file in files]
        loose = _mesh_files(folder)
        if loose:
            raise ValueError(f"{loose[0]}: it has no label, as it is in no subfolder of {folder}")
    else:
        files = _mesh_files(folder)
        if callable(labels):
            found = [labels(file.stem) for file in files]
        else:
            found = _csv_labels(Path(labels), files)
    if not files:
        place = "its subfolders" if labels is None else "it"
        raise ValueError(f"{folder}: no meshes ({', '.join(READERS)}) in {place}")
    return LabeledMeshes(_load(files, vertices), np.array(found))


def load_faust(folder: str | Path | None = None, vertices: int | None = None) -> FaustMeshes:
    """The 100 training registrations of FAUST (Bogo et al. 2014), from files tr_reg_000 to tr_reg_099.

    They are .ply or .off files in `folder`, or else in the folder that the environment variable GCGP_DATA
    names; in either case also in its subfolder `faust`, and in the subfolders `registrations`,
    `training/registrations` and `shapes` of these. The makers give the data to those who register, for
    research only. `vertices` decimates each mesh to that many (see `decimate`).
    """
    folder = folder or os.environ.get(DATA_VARIABLE)
    if not folder:
        raise FileNotFoundError(f"no folder given for FAUST, and {DATA_VARIABLE} is not set")
    files = {f"tr_reg_{i:03}": _find(Path(folder), f"tr_reg_{i:03}") for i in range(100)}
    missing = [name for name, file in files.items() if file is None]
    if missing:
        names = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise FileNotFoundError(f"{folder}: no .ply or .off file for {names}")
    numbers = np.arange(100)
    meshes = _load([file for file in files.values() if file], vertices)
    return FaustMeshes(meshes, numbers // 10, numbers % 10)


def _find(folder: Path, name: str) -> Path | None:
    files = (
        folder / parent / place / (name + ending)
        for parent in ("", "faust")
        for place in FAUST_PLACES
        for ending in (".ply", ".off")
    )
    return next((file for file in files if file.is_file()), None)


def _mesh_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in READERS and file.is_file())


def _load(files: Sequence[Path], vertices: int | None) -> list[Mesh]:
    meshes = []
    for file in tqdm(files, desc="meshes", unit=" meshes", delay=1, disable=None):
        mesh = load_mesh(file)
        meshes.append(mesh if vertices is None else decimate(mesh, vertices, cache=True))
    return meshes


def _csv_labels(path: Path, files: Sequence[Path]) -> list[Any]:
    """The label of each file; each file must have one row and each row one file."""
    with path.open(newline="", encoding="utf-8-sig") as lines:
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines) if row]
    if rows and [cell.lower() for cell in rows[0]] == ["file", "label"]:
        rows = rows[1:]
    given: dict[Path, str] = {}
    for row in rows:
        if len(row) != 2:
            raise ValueError(f"{path}: the row {','.join(row)!r} has {len(row)} columns, not file and label")
        matches = [file for file in files if row[0] in (file.name, file.stem)]
        if len(matches) != 1:
            raise ValueError(f"{path}: {len(matches)} files for {row[0]!r}, whose label is {row[1]!r}")
        if matches[0] in given:
            raise ValueError(f"{path}: {row[0]!r} has two labels, {given[matches[0]]!r} and {row[1]!r}")
        given[matches[0]] = row[1]
    for file in files:
        if file not in given:
            raise ValueError(f"{path}: no label for {file.name}")
    return _as_numbers([given[file] for file in files])


def _as_numbers(cells: list[str]) -> list[Any]:
    for number in (int, float):
        try:
            return [number(cell) for cell in cells]
        except ValueError:
            pass
    return list(cells)
