"""Image grids: one stencil for all pixels, compared with breadth-first search."""

import math

import numpy as np
import pytest

from gcgp.domain import Domains, Grids, Signals, Stencil
from slow_patches import grid_pairs


def grid(*shapes):
    return Grids(np.array(shapes, dtype=np.int64))


@pytest.mark.parametrize("reach", [0.0, 0.9, 1.0, 2.5, 4.0])
def test_stencil_gives_graph_distance_and_direction_of_all_pairs_in_reach(reach):
    height, width = 4, 5
    stencil = grid((height, width)).chart(["rho", "theta", "offset"], reach)
    at = {tuple(offset): i for i, offset in enumerate(stencil.offsets.tolist())}
    assert len(at) == len(stencil.offsets)
    for v, row in enumerate(grid_pairs(height, width)):
        for w, pair in enumerate(row):
            step = (w // width - v // width, w % width - v % width)
            assert (step in at) == (pair.rho <= reach)
            if step in at:
                assert stencil.coordinates["rho"][at[step]] == pair.rho
                assert stencil.coordinates["offset"][at[step]].tolist() == list(pair.offset)
                np.testing.assert_allclose(stencil.coordinates["theta"][at[step]], pair.theta)


def test_direction_points_along_columns_first_then_down_the_rows():
    stencil = grid((3, 3)).chart(["theta"], 1.0)
    theta = dict(zip(map(tuple, stencil.offsets.tolist()), stencil.coordinates["theta"], strict=True))
    assert theta[0, 1] == 0.0
    assert theta[1, 0] == pytest.approx(math.pi / 2)
    assert theta[1, 1] == pytest.approx(math.pi / 4)
    assert theta[-1, 0] == pytest.approx(-math.pi / 2)


def test_only_the_center_has_no_direction():
    stencil = grid((9, 9)).chart(["theta"], 3.0)
    center = (stencil.offsets == 0).all(axis=1)
    np.testing.assert_array_equal(np.isnan(stencil.coordinates["theta"]), center)
    assert center.sum() == 1


def test_chart_holds_only_the_coordinates_asked_for():
    assert list(grid((3, 3)).chart(["offset"], 1.0).coordinates) == ["offset"]


def test_one_stencil_serves_all_images_of_any_size():
    signals = Signals.from_images(np.zeros((50, 6, 6)))
    assert len(signals.domains) == 1
    chart = signals.domains.chart(["rho"], 2.0)
    assert isinstance(chart, Stencil)
    assert len(chart.offsets) == 25
    assert len(grid((6, 6), (3, 8)).chart(["rho"], 2.0).offsets) == 25


def test_concatenation_merges_equal_shapes():
    merged, indices = Grids.concatenate([grid((4, 4), (2, 2)), grid((2, 2)), grid((4, 4), (3, 1))])
    assert len(merged) == 3
    assert [merged.shapes[index].tolist() for index in indices] == [
        [[4, 4], [2, 2]],
        [[2, 2]],
        [[4, 4], [3, 1]],
    ]


def test_counts_spacing_and_choice():
    grids = grid((4, 3), (2, 2))
    assert grids.vertex_counts.tolist() == [12, 4]
    assert grids.spacing() == 1.0
    assert grids.take(np.array([1])).shapes.tolist() == [[2, 2]]
    assert isinstance(grids, Domains)


def test_no_grids_have_no_positions():
    assert grid((4, 3)).take(np.zeros(0, dtype=np.int64)).positions.shape == (0, 2)


def test_unknown_options_raise():
    with pytest.raises(ValueError, match=r"image grid: kind='euclidean' is not known.*'auto', 'path'"):
        grid((3, 3)).chart(["rho"], 1.0, "euclidean")
    with pytest.raises(ValueError, match=r"image grid='degree' is not known.*'rho', 'theta', 'offset'"):
        grid((3, 3)).chart(["rho", "degree"], 1.0)


def test_a_stencil_is_no_larger_than_the_images():
    grids = Grids(np.array([[4, 4], [3, 5]]))
    far, near = grids.chart(["rho"], 1e9), grids.chart(["rho"], 4.0)
    np.testing.assert_array_equal(far.offsets, near.offsets)
