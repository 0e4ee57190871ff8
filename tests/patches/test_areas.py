"""Vertices of meshes weighted by area, in bins and in sums, compared with loops."""

import numpy as np
import pytest
import torch

from gcgp.domain import Mesh, Signals
from gcgp.patches import Convolution
from gcgp.weighting import Radial


def square_mesh():
    """A square with a vertex near its middle, so that vertices have different areas."""
    corners = [[0, 0, 0], [2, 0, 0], [2, 2, 0], [0, 2, 0], [0.6, 0.9, 0]]
    return Mesh(corners, [[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]])


def test_vertices_of_meshes_are_weighted_by_area():
    mesh, values = square_mesh(), np.array([1.0, -2.0, 0.5, 3.0, 0.7])
    signals = Signals.on_meshes([values, values[::-1]], [mesh, mesh.scaled(2)])
    weighting = Radial([0.0, 1.5], 0.8)
    patches = Convolution(weighting, area_weighted=True, bin_counts=True, dtype=torch.float64).patches(
        signals
    )
    rows = patches.values.detach()
    for n, (signal, scale) in enumerate([(values, 1.0), (values[::-1], 2.0)]):
        area = mesh.vertex_areas / mesh.vertex_areas.mean()
        for v in range(5):
            rho = scale * np.linalg.norm(mesh.vertices - mesh.vertices[v], axis=1)
            for k, radius in enumerate([0.0, 1.5]):
                u = np.where(rho <= weighting.reach, np.exp(-0.5 * ((rho - radius) / 0.8) ** 2), 0) * area
                row = rows[5 * n + v]
                assert float(row[k]) == pytest.approx(u @ signal / u.sum(), rel=1e-5)
                assert float(row[2 + k]) == pytest.approx(u.sum(), rel=1e-5)
        np.testing.assert_allclose(patches.multiplicity[5 * n : 5 * n + 5], area)


def test_area_weighting_needs_areas():
    flat = Mesh([[0, 0, 0], [1, 0, 0], [2, 0, 0]], [[0, 1, 2]])
    signals = Signals.on_meshes([np.zeros(5), np.zeros(3)], [square_mesh(), flat])
    patches = Convolution(Radial([0.0]), area_weighted=True).patches(signals)
    assert patches.multiplicity[5:].tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="area_weighted=True needs domains with areas"):
        Convolution(Radial([0.0]), area_weighted=True).patches(Signals.from_graphs([[1.0, 2.0]], [[[0, 1]]]))
