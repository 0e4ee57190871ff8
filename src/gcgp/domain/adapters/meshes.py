"""Meshes of trimesh, or of any library whose meshes have `vertices` and `faces`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gcgp._runtime.arrays import as_list, type_text
from gcgp.mesh.mesh import Mesh


def is_mesh(item: Any) -> bool:
    """Whether this is a `Mesh` or a mesh of trimesh."""
    return hasattr(item, "vertices") and hasattr(item, "faces")


def as_mesh(item: Any, name: str) -> Mesh:
    """A `Mesh` unchanged, or a `Mesh` with the vertices and faces of a trimesh object."""
    if isinstance(item, Mesh):
        return item
    if not is_mesh(item):
        raise TypeError(f"{name}: expected a Mesh, got {type(item).__name__}")
    return Mesh(np.array(item.vertices), np.array(item.faces))


def as_meshes(meshes: Any) -> list[Mesh]:
    """One `Mesh` per item; the same object gives the same mesh."""
    error = f"meshes: expected a list with one item per signal, got {type_text(meshes)}"
    if is_mesh(meshes):
        raise TypeError(error)
    items = as_list(meshes, error)
    read: dict[int, Mesh] = {}
    for i, item in enumerate(items):
        if id(item) not in read:
            read[id(item)] = as_mesh(item, f"mesh {i}")
    return [read[id(item)] for item in items]
