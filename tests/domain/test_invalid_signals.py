"""Invalid signals: errors name the item, the field and the value."""

import re

import numpy as np
import pytest

from gcgp.domain import Mesh, Signals

TRIANGLE = [[0, 1], [1, 2], [2, 0]]
BAD_NUMBERS = [np.nan, np.inf, -np.inf]
FACE = Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])


def raises(message):
    return pytest.raises(ValueError, match=re.escape(message))


@pytest.mark.parametrize("bad", BAD_NUMBERS)
def test_values_must_be_finite(bad):
    stack = np.zeros((3, 2, 2, 2))
    stack[1, 1, 0, 1] = bad
    message = f"signal 1: values at [2, 1] is {bad}; it must be finite"
    with raises(message):
        Signals.from_images(stack)
    with raises(message):
        Signals.from_images(list(stack))
    with raises(message):
        Signals.from_graphs(list(stack.reshape(3, 4, 2)), [[]] * 3)
    with raises(message):
        Signals.on_graph(stack.reshape(3, 4, 2), TRIANGLE)


@pytest.mark.parametrize("bad", BAD_NUMBERS)
def test_coordinates_must_be_finite(bad):
    coordinates = np.zeros((3, 2))
    coordinates[2, 1] = bad
    with raises(f"graph 1: coordinates at [2, 1] is {bad}; it must be finite"):
        Signals.from_graphs([np.zeros(3)] * 2, [TRIANGLE] * 2, None, [np.zeros((3, 2)), coordinates])
    with raises(f"graph 0: coordinates at [2, 1] is {bad}; it must be finite"):
        Signals.on_graph(np.zeros((2, 3)), TRIANGLE, None, coordinates)


@pytest.mark.parametrize("bad", BAD_NUMBERS)
def test_edge_lengths_must_be_finite(bad):
    with raises(f"graph 1: edge_lengths at [1] is {bad}; it must be finite"):
        Signals.from_graphs([np.zeros(3)] * 2, [TRIANGLE] * 2, [[1.0] * 3, [1.0, bad, 1.0]])


def test_edge_lengths_must_not_be_negative():
    with raises("graph 1: edge_lengths[2] is -0.5; it must not be negative"):
        Signals.from_graphs([np.zeros(3)] * 2, [TRIANGLE] * 2, [[1.0] * 3, [1.0, 0.0, -0.5]])


@pytest.mark.parametrize("bad", [[0, 3], [-1, 2]])
def test_edges_must_name_vertices_of_their_graph(bad):
    with raises(f"graph 1: edges[1] is {bad}, but its vertices are 0 to 2"):
        Signals.from_graphs([np.zeros(9), np.zeros(3)], [TRIANGLE, [[0, 1], bad]])
    with raises(f"graph 0: edges[0] is {bad}, but its vertices are 0 to 2"):
        Signals.on_graph(np.zeros((4, 3)), [bad])


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([[0, 1, 2]], "graph 0: edges must have shape [E, 2], got (1, 3)"),
        ([0, 1], "graph 0: edges must have shape [E, 2], got (2,)"),
        ([[0.0, 1.0]], "graph 0: edges must be integers, got dtype float64"),
    ],
)
def test_edges_must_be_pairs_of_integers(edges, message):
    with raises(message):
        Signals.from_graphs([np.zeros(3)], [edges])


def test_fields_of_a_graph_must_have_matching_lengths():
    values, edges = [np.zeros(3)] * 2, [TRIANGLE] * 2
    with raises("graph 1: 2 coordinates for 3 values"):
        Signals.from_graphs(values, edges, None, [np.zeros((3, 2)), np.zeros((2, 2))])
    with raises("graph 1: 1 edge_lengths for 3 edges"):
        Signals.from_graphs(values, edges, [[1.0] * 3, [1.0]])
    with raises("graph 1: coordinates have 3 dimensions, those of graph 0 2"):
        Signals.from_graphs(values, edges, None, [np.zeros((3, 2)), np.zeros((3, 3))])
    with raises("graph 0: coordinates must have shape [V, k], got (3,)"):
        Signals.from_graphs(values, edges, None, [np.zeros(3)] * 2)


@pytest.mark.parametrize("field", ["edges", "edge_lengths", "coordinates"])
def test_every_graph_needs_every_field(field):
    fields = {"edges": [TRIANGLE] * 2, "edge_lengths": [[1.0] * 3] * 2, "coordinates": [np.eye(3)] * 2}
    fields[field] = fields[field][:1]
    with raises(f"{field}: 1 items for 2 graphs"):
        Signals.from_graphs([np.zeros(3)] * 2, **fields)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Signals.from_images(np.zeros((0, 4, 4))),
        lambda: Signals.from_images([]),
        lambda: Signals.from_graphs([], []),
        lambda: Signals.on_graph(np.zeros((0, 3)), TRIANGLE),
        lambda: Signals.from_pyg([]),
    ],
    ids=["stack", "images", "graphs", "shared graph", "pyg"],
)
def test_an_empty_set_raises(make):
    with raises("the set is empty (0 signals)"):
        make()


def test_a_signal_without_vertices_raises():
    with raises("signal 0: values has no vertices"):
        Signals.from_images(np.zeros((2, 0, 4)))
    with raises("signal 1: values has no vertices"):
        Signals.from_images([np.zeros((2, 2)), np.zeros((2, 0))])
    with raises("signal 1: values has no vertices"):
        Signals.from_graphs([np.zeros(3), np.zeros(0)], [TRIANGLE, []])
    with raises("signal 1: values has no vertices"):
        Signals.from_graphs([np.zeros((3, 2)), np.zeros((0, 2))], [TRIANGLE, []])
    with raises("signal 0: values has no vertices"):
        Signals.on_graph(np.zeros((2, 0)), [])


def test_signals_must_agree_in_channels():
    with raises("signal 1: 3 channels, signal 0 has 2"):
        Signals.from_images([np.zeros((2, 2, 2)), np.zeros((2, 2, 3))])
    with raises("signal 1: 1 channels, signal 0 has 2"):
        Signals.from_graphs([np.zeros((3, 2)), np.zeros(3)], [TRIANGLE] * 2)


def test_values_of_graphs_must_have_channels():
    with raises("signal 0: 0 channels"):
        Signals.from_graphs([np.zeros((3, 0))], [TRIANGLE])


def test_images_must_have_channels():
    with raises("signal 0: 0 channels"):
        Signals.from_images(np.zeros((2, 4, 4, 0)))


def test_wrong_shapes_raise():
    with raises("images: expected shape [N, H, W] or [N, H, W, C], got (4, 4)"):
        Signals.from_images(np.zeros((4, 4)))
    with raises("images: expected shape [N, H, W] or [N, H, W, C], got (1, 2, 3, 4, 5)"):
        Signals.from_images(np.zeros((1, 2, 3, 4, 5)))
    with raises("image 1: expected shape [H, W] or [H, W, C], got (3,)"):
        Signals.from_images([np.zeros((2, 2)), np.zeros(3)])
    with raises("graph 1: values must have shape [V] or [V, d], got (3, 1, 1)"):
        Signals.from_graphs([np.zeros(3), np.zeros((3, 1, 1))], [TRIANGLE] * 2)
    with raises("values: expected shape [N, V] or [N, V, d], got (3,)"):
        Signals.on_graph(np.zeros(3), TRIANGLE)


def test_values_must_be_real_rectangular_numbers():
    with raises("image 1: values must be real numbers, got dtype complex128"):
        Signals.from_images([np.zeros((2, 2)), np.zeros((2, 2), dtype=complex)])
    with raises("graph 0: values must be real numbers, got dtype <U1"):
        Signals.from_graphs([["a", "b"]], [[]])
    with raises("graph 1: values are not a rectangular array"):
        Signals.from_graphs([[[1.0], [2.0]], [[1.0], [2.0, 3.0]]], [[]] * 2)


def test_images_must_be_rectangular():
    with raises("image 1: values are not a rectangular array"):
        Signals.from_images([[[1.0, 2.0]], [[1.0, 2.0], [3.0]]])


def test_values_must_fit_their_meshes():
    with pytest.raises(ValueError, match="signal 0: 2 values for 3 vertices of its mesh"):
        Signals.on_meshes([[1.0, 2.0]], [FACE])
    with pytest.raises(ValueError, match="2 items for 1 meshes"):
        Signals.on_meshes([[1.0] * 3] * 2, [FACE])
    with pytest.raises(ValueError, match="signal 0: values at"):
        Signals.on_meshes([[1.0, np.nan, 2.0]], [FACE])


def masked(shape, index):
    mask = np.zeros(shape, dtype=bool)
    mask[index] = True
    return np.ma.masked_array(np.ones(shape), mask)


def test_masked_values_raise_but_empty_masks_do_not():
    advice = "is masked; fill masked values or leave them out"
    with raises(f"image 1: values at [0, 2] {advice}"):
        Signals.from_images(masked((3, 2, 4), (1, 0, 2)))
    with raises(f"image 1: values at [0, 2] {advice}"):
        Signals.from_images([np.ones((2, 4)), masked((2, 4), (0, 2))])
    with raises(f"graph 1: values at [2] {advice}"):
        Signals.from_graphs([np.ones(3), masked(3, 2)], [TRIANGLE] * 2)
    with raises(f"signal 1: values at [2] {advice}"):
        Signals.on_graph(masked((2, 3), (1, 2)), TRIANGLE)
    with raises(f"graph 0: coordinates at [2, 1] {advice}"):
        Signals.from_graphs([np.ones(3)], [TRIANGLE], None, [masked((3, 2), (2, 1))])
    with raises(f"graph 0: edge_lengths at [1] {advice}"):
        Signals.from_graphs([np.ones(3)], [TRIANGLE], [masked(3, 1)])
    assert len(Signals.from_images(np.ma.masked_array(np.ones((3, 2, 4)), mask=False))) == 3
