"""Patches of selected vertices are the same as among all, on each kind of domain."""

import numpy as np
import pytest
import torch
import trimesh

from gcgp.domain import Mesh, Signals
from gcgp.patches import Convolution
from gcgp.weighting import Box, Polar, Radial

BALL = trimesh.creation.icosphere(subdivisions=2)
MESH = Mesh(BALL.vertices, BALL.faces)
DOMAINS = {
    "images": (
        Signals.from_images(np.random.default_rng(0).random((3, 6, 5, 2))),
        {"weighting": Polar([1.0, 2.0], 4), "position": True},
    ),
    "whole patches of images": (
        Signals.from_images(np.random.default_rng(0).random((3, 6, 5))),
        {"weighting": Box(3)},
    ),
    "graphs": (
        Signals.from_graphs(
            [np.arange(4.0), np.arange(6.0)], [[[0, 1], [1, 2], [2, 3]], [[0, 1], [1, 5], [2, 3]]]
        ),
        {"weighting": Radial([0.0, 1.0]), "bin_counts": True},
    ),
    "meshes": (
        Signals.on_meshes([np.sin(mesh.vertices) for mesh in (MESH, MESH)], [MESH, MESH]),
        {"weighting": Polar([0.1, 0.3], 4, 0.1), "area_weighted": True},
    ),
}


@pytest.mark.parametrize(("signals", "options"), DOMAINS.values(), ids=DOMAINS.keys())
def test_patches_of_selected_vertices_are_those_among_all(signals, options):
    convolution = Convolution(dtype=torch.float64, **options)
    whole = convolution.patches(signals)
    selected = convolution.empty_patches(signals).thinned(3, np.random.default_rng(0))
    some = convolution.patches(signals, at=selected)
    where = torch.nonzero(torch.isin(whole.vertices, selected.vertices))[:, 0]
    assert 0 < len(where) < len(whole.vertices)
    assert some.vertices.tolist() == whole.vertices[where].tolist()
    torch.testing.assert_close(some.values, whole.values[where])
    drawn = torch.isin(selected.vertices, some.vertices)
    torch.testing.assert_close(some.multiplicity, selected.multiplicity[drawn])
    owners = torch.searchsorted(torch.from_numpy(signals.offsets), some.vertices, right=True) - 1
    assert some.signal_of.tolist() == owners.tolist()
