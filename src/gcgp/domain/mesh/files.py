"""Meshes from files and to files: OFF, OBJ, PLY and STL.

PLY and STL go through trimesh. OFF and OBJ are read here, because trimesh takes an OFF file that is cut off
for a smaller mesh, and splits the vertices of an OBJ file that have several normals or materials.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from gcgp.domain.mesh.mesh import Mesh
from gcgp.domain.whole_file import whole_file

Polygons = Sequence[Sequence[int]] | np.ndarray


def load_mesh(path: str | Path) -> Mesh:
    """The mesh of an OFF, OBJ, PLY or STL file, named after the file; PLY and STL need the extra `meshes`.

    Vertices keep their order and number, faces are neither removed nor repaired; colours, normals,
    textures and materials are not read. Two things cannot stay as they are: polygons of more than three
    corners become fans of triangles, and an STL file, which repeats the corners of each face, gets one
    vertex for all corners at exactly the same place.
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
        return Mesh(vertices, _triangles(polygons), name=path.stem)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def save_mesh(mesh: Mesh, path: str | Path) -> None:
    """Write an OFF or OBJ file, exact to the last digit, or a PLY or STL file in single precision.

    An existing file is replaced at once or not at all; PLY and STL need the extra `meshes`.
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
    with whole_file(path) as part:
        part.write_bytes(content)


def _lines(start: str, rows: np.ndarray) -> list[str]:
    return [start + " ".join(map(repr, row)) for row in rows.tolist()]


def _trimesh() -> Any:
    try:
        import trimesh
    except ImportError as error:
        raise ImportError("PLY and STL files need trimesh: pip install 'gcgp[meshes]'") from error
    return trimesh


def _triangles(polygons: Polygons) -> Int[np.ndarray, "F 3"]:
    if not isinstance(polygons, np.ndarray):
        for i, polygon in enumerate(polygons):
            if len(polygon) < 3:
                raise ValueError(f"face {i} has {len(polygon)} corners")
        fans = [[p[0], *pair] for p in polygons for pair in pairwise(p[1:])]
        return np.array(fans, dtype=np.int64)
    corners = polygons.shape[1]
    if corners < 3:
        raise ValueError(f"face 0 has {corners} corners")
    fans = [[0, i, i + 1] for i in range(1, corners - 1)]
    return polygons[:, fans].reshape(-1, 3).astype(np.int64)


def _read_off(content: bytes) -> tuple[np.ndarray, Polygons]:
    rows = [line.split("#")[0].strip() for line in _text(content).splitlines()]
    rows = [row for row in rows if row]
    # Some files run the counts into the first word: OFF490 518 0.
    head = re.match(r"C?N?OFF", rows[0]) if rows else None
    if head is None:
        raise ValueError("not an OFF file: its first word is not OFF")
    rows = [rows[0][head.end() :], *rows[1:]] if rows[0] != head[0] else rows[1:]
    if not rows or not re.match(r"\s*\d+\s+\d+", rows[0]):
        raise ValueError("not an OFF file: the numbers of vertices and faces are missing")
    vertices, faces = (int(word) for word in rows[0].split()[:2])
    if len(rows) - 1 < vertices + faces:
        raise ValueError(
            f"{len(rows) - 1} lines for {vertices} vertices and {faces} faces; the file is cut off"
        )
    places = [_numbers(row.split()[:3], "vertex", i) for i, row in enumerate(rows[1 : 1 + vertices])]
    polygons = []
    for i, row in enumerate(rows[1 + vertices : 1 + vertices + faces]):
        words = row.split()
        corners = int(words[0])
        if len(words) <= corners:
            raise ValueError(f"face {i} is {row!r}; the file is cut off or damaged")
        polygons.append([int(word) for word in words[1 : 1 + corners]])
    return np.array(places).reshape(-1, 3), polygons


def _read_obj(content: bytes) -> tuple[np.ndarray, Polygons]:
    places: list[list[float]] = []
    polygons = []
    for line in re.sub(r"\\\r?\n", " ", _text(content)).splitlines():
        words = line.split("#")[0].split()
        if words[:1] == ["v"]:
            places.append(_numbers(words[1:4], "vertex", len(places)))
        elif words[:1] == ["f"]:
            corners = [int(word.split("/")[0]) for word in words[1:]]
            # Numbers start at 1; negative ones count back from the latest vertex.
            polygons.append([i - 1 if i > 0 else len(places) + i if i < 0 else -1 for i in corners])
    return np.array(places).reshape(-1, 3), polygons


def _text(content: bytes) -> str:
    # Names and comments may be in any encoding; numbers are ASCII.
    return content.decode("utf-8", errors="replace")


def _numbers(words: list[str], item: str, index: int) -> list[float]:
    if len(words) != 3:
        raise ValueError(f"{item} {index} has {len(words)} coordinates; the file is cut off or damaged")
    return [float(word) for word in words]


def _read_ply(content: bytes) -> tuple[np.ndarray, Polygons]:
    _trimesh()
    from trimesh.exchange.ply import load_ply

    loaded = _quietly(load_ply, content, fix_texture=False, skip_materials=True)
    elements = loaded["metadata"]["_ply_raw"]
    for name in ("vertex", "face"):
        if name not in elements or elements[name]["length"] == 0:
            raise ValueError(f"it holds no {'vertices' if name == 'vertex' else 'faces'}")
    try:
        vertices = np.column_stack([np.ravel(elements["vertex"]["data"][axis]) for axis in "xyz"])
        data = elements["face"]["data"]
        names = data.keys() if isinstance(data, dict) else data.dtype.names
        name = next(name for name in names if name in ("vertex_indices", "vertex_index"))
    except (KeyError, StopIteration, TypeError, ValueError) as error:
        raise ValueError("its vertices have no x, y, z or its faces no vertex_indices") from error
    polygons = data[name] if isinstance(data, dict) else data[name]["f1"]
    for item, rows in (("vertex", vertices), ("face", polygons)):
        if len(rows) != elements[item]["length"]:
            raise ValueError(
                f"{len(rows)} rows for {elements[item]['length']} of element {item}; the file is cut off"
            )
    return vertices, list(polygons) if polygons.dtype == object else polygons


def _read_stl(content: bytes) -> tuple[np.ndarray, Polygons]:
    _trimesh()
    from trimesh.exchange.stl import load_stl

    loaded = _quietly(load_stl, content)
    solids = [loaded] if "vertices" in loaded else list(loaded["geometry"].values())
    if not solids:
        raise ValueError("it holds no faces: the file is cut off, or not an STL file")
    corners = np.concatenate([solid["vertices"] for solid in solids])
    facets = content.lower().count(b"facet normal")
    if content[:5].lower() == b"solid" and facets and 3 * facets != len(corners):
        raise ValueError(f"{facets} facets have {len(corners)} corners; the file is cut off or damaged")
    return _merged(corners)


def _merged(
    corners: Float[np.ndarray, "corners 3"],
) -> tuple[Float[np.ndarray, "V 3"], Int[np.ndarray, "F 3"]]:
    """One vertex for each place, in the order of their first corners."""
    places, first, inverse = np.unique(corners, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return places[order], rank[inverse.reshape(-1, 3)]


def _quietly(read: Callable[..., dict[str, Any]], content: bytes, **options: Any) -> dict[str, Any]:
    """What trimesh reads; whatever it stumbles over, warnings too, is a ValueError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return read(io.BytesIO(content), **options)
    except Exception as error:
        raise ValueError(f"the file is cut off or damaged ({error})") from error


READERS: dict[str, Callable[[bytes], tuple[np.ndarray, Polygons]]] = {
    ".off": _read_off,
    ".obj": _read_obj,
    ".ply": _read_ply,
    ".stl": _read_stl,
}
