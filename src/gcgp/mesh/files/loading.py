"""Reading and writing mesh files.

The readers are our own: trimesh reads a truncated OFF file as a smaller mesh, splits vertices of OBJ files
that have several normals or materials, and allocates as much memory as the counts in a file demand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from gcgp._runtime.atomic import atomic_write
from gcgp.mesh.files.obj import read_obj
from gcgp.mesh.files.off import read_off
from gcgp.mesh.files.parsing import Polygons, triangles
from gcgp.mesh.files.ply import read_ply
from gcgp.mesh.files.stl import STL_HEADER_BYTES, STL_RECORD, read_stl
from gcgp.mesh.mesh import Mesh

READERS: dict[str, Callable[[bytes], tuple[np.ndarray, Polygons]]] = {
    ".off": read_off,
    ".obj": read_obj,
    ".ply": read_ply,
    ".stl": read_stl,
}


def load_mesh(path: str | Path) -> Mesh:
    """The mesh in an OFF, OBJ, PLY or STL file, named after the file.

    The order and number of vertices are kept, and faces are not repaired; colors, normals, textures and
    materials are ignored. Polygons with more than three corners (at most 10,000) become fans of triangles,
    and the corners of an STL file, which it repeats for each face, are merged if they are equal. A file that
    is truncated, damaged or claims to contain more than its size allows raises a ValueError that names it.
    """
    path = Path(path)
    read = READERS[_checked_ending(path)]
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    content = path.read_bytes()
    if not content.strip():
        raise ValueError(f"{path}: the file is empty")
    try:
        vertices, polygons = read(content)
        if len(polygons) == 0:
            raise ValueError("it contains no faces")
        return Mesh(vertices, triangles(polygons, len(vertices)), name=path.stem)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def save_mesh(mesh: Mesh, path: str | Path) -> None:
    """Write an OFF, OBJ, PLY or STL file; STL files have single precision, the others are exact.

    An existing file is replaced atomically.
    """
    ending = _checked_ending(Path(path))
    if ending == ".off":
        head = ["OFF", f"{len(mesh.vertices)} {len(mesh.faces)} 0"]
        content = _text([*head, *_lines("", mesh.vertices), *_lines("3 ", mesh.faces)])
    elif ending == ".obj":
        content = _text([*_lines("v ", mesh.vertices), *_lines("f ", mesh.faces + 1)])
    elif ending == ".ply":
        head = ["ply", "format binary_little_endian 1.0", f"element vertex {len(mesh.vertices)}"]
        head += [*(f"property double {axis}" for axis in "xyz"), f"element face {len(mesh.faces)}"]
        head += ["property list uchar int vertex_indices", "end_header"]
        faces = np.zeros(len(mesh.faces), dtype=[("length", "u1"), ("indices", "<i4", 3)])
        faces["length"], faces["indices"] = 3, mesh.faces
        content = _text(head) + mesh.vertices.astype("<f8").tobytes() + faces.tobytes()
    else:
        records = np.zeros(len(mesh.faces), dtype=STL_RECORD)
        records["corners"] = mesh.vertices[mesh.faces]
        content = bytes(STL_HEADER_BYTES - 4) + len(records).to_bytes(4, "little") + records.tobytes()
    with atomic_write(Path(path)) as part:
        part.write_bytes(content)


def _checked_ending(path: Path) -> str:
    ending = path.suffix.lower()
    if ending not in READERS:
        raise ValueError(f"{path}: unknown ending {ending!r}; expected one of {', '.join(READERS)}")
    return ending


def _lines(start: str, rows: np.ndarray) -> list[str]:
    return [start + " ".join(map(repr, row)) for row in rows.tolist()]


def _text(lines: list[str]) -> bytes:
    return "\n".join([*lines, ""]).encode()
