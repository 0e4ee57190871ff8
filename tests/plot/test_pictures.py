import numpy as np
import pytest
import torch

from gcgp import GCGPClassifier, Signals
from gcgp.domain import Grids
from gcgp.plot.signals import draw_evidence, plane_coordinates
from gcgp.weighting import Box, GaussianMixture

FAST = {"n_inducing": 8, "progress": False, "variance": 3.0, "lengthscale": 0.4, "position": False}


def drawn(signals, path):
    labels = np.arange(len(signals)) % 2
    model = GCGPClassifier(**FAST).fit(signals, labels)
    shown = signals[:2]
    draw_evidence(shown, model.predict_proba(shown), model.evidence(shown), [0, 1], [0, 1], path)
    return path.read_bytes()


def test_images_and_graphs_are_drawn(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "picture.png"
    assert drawn(Signals.from_images(rng.random((10, 5, 5))), path).startswith(b"\x89PNG")
    places = rng.random((5, 2))
    plane = Signals.on_graph(rng.random((10, 5)), [[0, 1], [2, 3]], coordinates=places)
    assert drawn(plane, path).startswith(b"\x89PNG")


def test_a_graph_without_coordinates_cannot_be_drawn(tmp_path):
    values = np.random.default_rng(0).random((10, 5))
    with pytest.raises(ValueError, match="needs an image or a graph with 2-D coordinates"):
        drawn(Signals.on_graph(values, [[0, 1]]), tmp_path / "picture.png")


ON_OFFSETS = {
    "mixture": GaussianMixture([[1.0, -0.5]], [[1.0, 0.4]], on=["offset"], reach=3.0),
    "box": Box(side=4),
}


@pytest.mark.parametrize("weighting", ON_OFFSETS.values(), ids=ON_OFFSETS.keys())
def test_bins_on_a_plane_are_those_of_charts(weighting):
    """Offsets are (x, y) in all of them: a bin that lies to the right is drawn to the right."""
    y, x = (axis.ravel().astype(float) for axis in np.mgrid[-2:3, -2:3])
    drawn = weighting(*plane_coordinates(weighting, x, y)).detach()
    of_pixels = Grids(np.array([[5, 5]])).chart(["offset"], 2.0).coordinates["offset"]
    graph = Signals.on_graph(np.zeros((1, 25)), [[0, 1]], coordinates=np.column_stack([x, y])).domains
    chart = graph.chart(["offset"], 4.0, "euclidean")
    middle = slice(*chart.row_offsets[12:14])
    for offset in (of_pixels, chart.coordinates["offset"][middle]):
        np.testing.assert_array_equal(offset, np.column_stack([x, y]))
        torch.testing.assert_close(weighting(torch.as_tensor(offset, dtype=drawn.dtype)).detach(), drawn)
