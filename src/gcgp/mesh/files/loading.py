"""Meshes from files and to files: OFF, OBJ, PLY and STL.

The readers are our own: trimesh takes an OFF file that is cut off for a smaller mesh, splits the vertices of
an OBJ file that have several normals or materials, and allocates whatever the counts of a file claim.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gcgp._runtime.atomic import atomic_write
from gcgp.mesh.files.obj import read_obj
from gcgp.mesh.files.off import read_off
from gcgp.mesh.files.parsing import Polygons, triangles
from gcgp.mesh.files.ply import read_ply
from gcgp.mesh.files.stl import read_stl
from gcgp.mesh.mesh import Mesh


def load_mesh(path: str | Path) -> Mesh:
    """The mesh of an OFF, OBJ, PLY or STL file, named after the file.

    Vertices keep their order and number, faces are neither removed nor repaired; colors, normals,
    textures and materials are not read. Two things cannot stay as they are: polygons of more than three
    corners (10,000 at most) become fans of triangles, and an STL file, which repeats the corners of each
    face, gets one vertex for all corners at exactly the same place. A file that is cut off, damaged or claims
    to hold more than its size allows is a ValueError that names it.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in READERS:
        raise ValueError(f"{path}: unknown ending {ending!r}; expected one of {', '.join(READERS)}")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    content = path.read_bytes()
    if not content.strip():
        raise ValueError(f"{path}: the file is empty")
    try:
        vertices, polygons = READERS[ending](content)
        if len(polygons) == 0:
            raise ValueError("it holds no faces")
        return Mesh(vertices, triangles(polygons, len(vertices)), name=path.stem)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def save_mesh(mesh: Mesh, path: str | Path) -> None:
    """Write an OFF or OBJ file, exact to the last digit, or a PLY or STL file in single precision.

    An existing file is replaced at once or not at all; writing PLY and STL needs the extra `meshes`.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in READERS:
        raise ValueError(f"{path}: unknown ending {ending!r}; expected one of {', '.join(READERS)}")
    if ending == ".off":
        lines = ["OFF", f"{len(mesh.vertices)} {len(mesh.faces)} 0"]
        lines += _lines("", mesh.vertices) + _lines("3 ", mesh.faces)
        content = "\n".join([*lines, ""]).encode()
    elif ending == ".obj":
        content = "\n".join([*_lines("v ", mesh.vertices), *_lines("f ", mesh.faces + 1), ""]).encode()
    else:
        plain = _trimesh().Trimesh(mesh.vertices, mesh.faces, process=False)
        content = plain.export(file_type=ending[1:])
    with atomic_write(path) as part:
        part.write_bytes(content)


def _lines(start: str, rows: np.ndarray) -> list[str]:
    return [start + " ".join(map(repr, row)) for row in rows.tolist()]


def _trimesh() -> Any:
    try:
        import trimesh
    except ImportError as error:
        raise ImportError("writing PLY and STL files needs trimesh: pip install 'gcgp[meshes]'") from error
    return trimesh


READERS: dict[str, Callable[[bytes], tuple[np.ndarray, Polygons]]] = {
    ".off": read_off,
    ".obj": read_obj,
    ".ply": read_ply,
    ".stl": read_stl,
}
