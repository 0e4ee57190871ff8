import numpy as np
import pytest
import torch
from sklearn.pipeline import make_pipeline

from gcgp import (
    Box,
    GaussianMixture,
    GCGPClassifier,
    Learn,
    Patch,
    PatchKernel,
    Polar,
    Signals,
    plot_learning,
)
from gcgp.domain import Grids
from gcgp.plot.learning import plane_coordinates

FAST = {"n_inducing": 8, "kernel": PatchKernel(lengthscale=0.4), "patch": Patch(position=False)}
ON_OFFSETS = {
    "mixture": GaussianMixture([[1.0, -0.5]], [[1.0, 0.4]], on=["offset"], reach=3.0),
    "box": Box(side=4),
}


@pytest.mark.parametrize("weighting", ON_OFFSETS.values(), ids=ON_OFFSETS.keys())
def test_coordinates_on_a_plane_are_those_of_charts(weighting):
    """Offsets are (x, y) in all of them: a bin to the right is drawn to the right."""
    y, x = (axis.ravel().astype(float) for axis in np.mgrid[-2:3, -2:3])
    drawn = weighting(*plane_coordinates(weighting, x, y)).detach()
    pixel_offsets = Grids(np.array([[5, 5]])).chart(["offset"], 2.0).coordinates["offset"]
    graph = Signals.on_graph(np.zeros((1, 25)), [[0, 1]], coordinates=np.column_stack([x, y])).domains
    chart = graph.chart(["offset"], 4.0, "euclidean")
    center = slice(*chart.row_offsets[12:14])
    for offset in (pixel_offsets, chart.coordinates["offset"][center]):
        np.testing.assert_array_equal(offset, np.column_stack([x, y]))
        torch.testing.assert_close(weighting(torch.as_tensor(offset, dtype=drawn.dtype)).detach(), drawn)


def test_a_coordinate_that_is_not_defined_on_a_plane():
    weighting = GaussianMixture([[0.5, 0.5]], on=["degree"])
    with pytest.raises(ValueError, match=r"coordinate 'degree' of .* is not defined on a plane"):
        plane_coordinates(weighting, np.zeros(1), np.zeros(1))


def test_bins_and_objective_of_a_learned_model(tmp_path):
    images = np.random.default_rng(0).random((20, 5, 5))
    model = GCGPClassifier(Polar([1.0], 4), learn=Learn(max_iter=2), **FAST)
    pipeline = make_pipeline("passthrough", model).fit(images, [0, 1] * 10)
    figure = plot_learning(pipeline, tmp_path / "learned.png")
    assert (tmp_path / "learned.png").read_bytes().startswith(b"\x89PNG")
    before, after, objective = figure.axes
    assert all(axes.get_visible() for axes in figure.axes)
    steps = sum(len(line.get_xdata()) for line in objective.lines)
    assert steps == len(pipeline[-1].history_)
    assert (before.get_title(loc="left"), after.get_title(loc="left")) == ("before learning", "learned")
    assert len(before.collections) == len(after.collections) == 4
    assert objective.get_ylabel() == "objective, nats per signal"


def test_a_model_without_learning():
    images = np.random.default_rng(0).random((6, 4, 4))
    model = GCGPClassifier(**FAST).fit(images, [0, 1] * 3)
    with pytest.raises(ValueError, match="learned no parameters: fit it with learn=True"):
        plot_learning(model)
