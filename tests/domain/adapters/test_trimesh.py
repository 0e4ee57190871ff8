"""Meshes of trimesh."""

import numpy as np
import pytest
import trimesh

from gcgp.domain import Mesh, Signals
from gcgp.domain.adapters.meshes import as_mesh


def test_trimesh_objects_are_meshes():
    box = trimesh.creation.box()
    signals = Signals.on_meshes([np.arange(8), np.ones(8)], [box, box])
    assert isinstance(signals.domains.meshes[0], Mesh)
    assert signals.domains.meshes[0] is signals.domains.meshes[1]
    np.testing.assert_array_equal(signals.domains.meshes[0].faces, box.faces)
    assert as_mesh(signals.domains.meshes[0], "mesh 0") is signals.domains.meshes[0]


def test_other_objects_raise_type_errors():
    with pytest.raises(TypeError, match="mesh 0: expected a Mesh, got PointCloud"):
        Signals.on_meshes([np.ones(3)], [trimesh.PointCloud(np.eye(3))])
    with pytest.raises(TypeError, match="meshes: expected a list with one item per signal, got a Mesh"):
        Signals.on_meshes([np.ones(8)], as_mesh(trimesh.creation.box(), "mesh"))
