"""Sets of signals: construction, indexing and concatenation."""

import pickle

import numpy as np
import pytest
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split
from sklearn.utils import _safe_indexing, indexable

from gcgp.domain import Graphs, Grids, Mesh, Signals

TRIANGLE = [[0, 1], [1, 2], [2, 0]]


@pytest.fixture
def images():
    return np.arange(6 * 4 * 3, dtype=np.float64).reshape(6, 4, 3)


@pytest.fixture
def mixed():
    """Images of two alternating sizes; all pixels of image n have the value n."""
    return Signals.from_images([np.full((2 + n % 2, 3), float(n)) for n in range(5)])


@pytest.fixture
def graphs():
    """Three graphs of 3, 1 and 4 vertices with lengths and coordinates."""
    return Signals.from_graphs(
        [[1.0, 2.0, 3.0], [4.0], [5.0, 6.0, 7.0, 8.0]],
        [TRIANGLE, [], [[3, 1]]],
        [[1.0, 2.0, 3.0], [], [0.5]],
        [np.eye(3, 2), np.zeros((1, 2)), np.ones((4, 2))],
    )


def values_of(signals):
    return [one.values.tolist() for one in signals]


def test_stack_of_grey_images_has_one_channel_and_one_domain(images):
    signals = Signals.from_images(images)
    assert len(signals) == 6
    assert signals.channels == 1
    assert signals.shape == (6,)
    assert signals.vertex_counts.tolist() == [12] * 6
    assert signals.domains.shapes.tolist() == [[4, 3]]
    assert signals.domain_of.tolist() == [0] * 6
    np.testing.assert_array_equal(signals.values[:, 0], images.reshape(-1))


def test_stack_of_color_images_keeps_channels_last():
    images = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    signals = Signals.from_images(images)
    assert signals.channels == 5
    np.testing.assert_array_equal(signals.values, images.reshape(-1, 5))


def test_list_of_images_shares_a_domain_between_equal_shapes():
    images = [np.full((2, 3), 1.0), np.full((4, 2), 2.0), np.full((2, 3), 3.0)]
    signals = Signals.from_images(images)
    assert signals.vertex_counts.tolist() == [6, 8, 6]
    assert len(signals.domains) == 2
    assert signals.domains.shapes[signals.domain_of].tolist() == [[2, 3], [4, 2], [2, 3]]
    assert [set(one.values.ravel()) for one in signals] == [{1.0}, {2.0}, {3.0}]


def test_list_of_color_images_and_nested_lists():
    assert Signals.from_images([np.zeros((2, 3, 2)), np.zeros((3, 3, 2))]).channels == 2
    assert Signals.from_images([[[1, 2], [3, 4]]]).values.ravel().tolist() == [1, 2, 3, 4]


def test_graphs_keep_values_edges_lengths_and_coordinates(graphs):
    domains = graphs.domains
    assert isinstance(domains, Graphs)
    assert domains.vertex_offsets.tolist() == [0, 3, 4, 8]
    assert domains.edge_offsets.tolist() == [0, 3, 3, 4]
    assert domains.edges.tolist() == [*TRIANGLE, [3, 1]]
    assert domains.edge_lengths.tolist() == [1.0, 2.0, 3.0, 0.5]
    assert domains.positions.tolist() == [[1, 0], [0, 1], [0, 0], [0, 0], *[[1, 1]] * 4]
    assert graphs.values.ravel().tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_graphs_need_neither_lengths_nor_coordinates():
    signals = Signals.from_graphs([np.zeros((3, 2)), np.zeros((2, 2))], [TRIANGLE, [[0, 1]]])
    assert signals.channels == 2
    assert signals.domains.edge_lengths is None
    assert signals.domains.positions is None


def test_isolated_vertices_and_several_components_are_legal():
    signals = Signals.from_graphs([np.zeros(5), np.zeros(2)], [[[0, 1], [2, 3]], []])
    assert signals.domains.degrees().tolist() == [1, 1, 1, 1, 0, 0, 0]


def test_signals_on_one_graph_share_it():
    values = np.arange(4 * 3 * 2, dtype=np.float64).reshape(4, 3, 2)
    signals = Signals.on_graph(values, TRIANGLE, [1.0, 2.0, 3.0], np.eye(3, 2))
    assert len(signals) == 4
    assert len(signals.domains) == 1
    assert signals.domain_of.tolist() == [0, 0, 0, 0]
    np.testing.assert_array_equal(signals.values.reshape(4, 3, 2), values)
    assert Signals.on_graph(values[:, :, 0], TRIANGLE).channels == 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.float16, np.float32),
        (np.uint8, np.float32),
        (np.int64, np.float32),
        (np.bool_, np.float32),
    ],
)
def test_floats_keep_their_precision_and_other_numbers_become_float32(given, expected):
    ones = np.ones((2, 3, 3), dtype=given)
    assert Signals.from_images(ones).values.dtype == expected
    assert Signals.from_images(list(ones)).values.dtype == expected
    assert Signals.from_graphs(list(ones), [TRIANGLE] * 2).values.dtype == expected
    assert Signals.on_graph(ones, TRIANGLE).values.dtype == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (2, [2]),
        (-1, [4]),
        (np.int64(3), [3]),
        (slice(1, 4), [1, 2, 3]),
        (slice(None, None, -2), [4, 2, 0]),
        (slice(3, 1), []),
        ([3, 0, 3], [3, 0, 3]),
        (np.array([-1, 1]), [4, 1]),
        (np.array([True, False, False, True, False]), [0, 3]),
        ([False, True, False, False, False], [1]),
        (([4, 2], ...), [4, 2]),
        ((slice(0, 2), ...), [0, 1]),
    ],
)
def test_indexing_chooses_signals_in_order(mixed, key, expected):
    chosen = mixed[key]
    assert isinstance(chosen, Signals)
    assert len(chosen) == len(expected)
    assert chosen.vertex_counts.tolist() == [3 * (2 + n % 2) for n in expected]
    assert chosen.values.ravel().tolist() == [float(n) for n in expected for _ in range(3 * (2 + n % 2))]
    shapes = chosen.domains.shapes[chosen.domain_of].tolist()
    assert shapes == [[2 + n % 2, 3] for n in expected]


@pytest.mark.parametrize("nothing", [[], np.array([], dtype=np.int64), np.zeros(3, dtype=bool), slice(0, 0)])
def test_an_empty_choice_of_graphs_is_an_empty_set(graphs, nothing):
    assert len(graphs[nothing]) == 0
    assert "0 signals on graphs, no vertices" in repr(graphs[nothing])


def test_indexing_takes_only_the_domains_in_use(mixed, graphs):
    assert mixed[[0, 2]].domains.shapes.tolist() == [[2, 3]]
    chosen = graphs[[2, 0]]
    assert len(chosen.domains) == 2
    assert values_of(chosen) == [values_of(graphs)[2], values_of(graphs)[0]]
    assert values_of(graphs[[2, 2]]) == [values_of(graphs)[2]] * 2
    last = graphs[2].domains
    assert (last.edges.tolist(), last.edge_lengths.tolist()) == ([[3, 1]], [0.5])
    assert last.coordinates.tolist() == [[1, 1]] * 4


def test_signals_on_one_graph_still_share_it_after_indexing():
    signals = Signals.on_graph(np.arange(12).reshape(4, 3), TRIANGLE)[[3, 1]]
    assert len(signals.domains) == 1
    assert signals.values.ravel().tolist() == [9, 10, 11, 3, 4, 5]


@pytest.mark.parametrize("key", [5, -6, [0, 5], (0, 1), (0, ..., 1), [True, False], 1.5])
def test_a_wrong_index_is_an_index_error(mixed, key):
    with pytest.raises(IndexError):
        mixed[key]


def test_iteration_gives_sets_of_one(graphs):
    ones = list(graphs)
    assert [len(one) for one in ones] == [1, 1, 1]
    assert [one.values.ravel().tolist() for one in ones] == [[1, 2, 3], [4], [5, 6, 7, 8]]
    assert [one.vertex_counts.tolist() for one in ones] == [[3], [1], [4]]


def test_repr_gives_count_domain_sizes_and_channels(mixed, graphs):
    assert repr(mixed) == "Signals(5 signals on grids, 6 to 9 vertices, 1 channels)"
    assert repr(graphs) == "Signals(3 signals on graphs, 1 to 4 vertices, 1 channels)"
    assert repr(graphs[0]) == "Signals(1 signals on graphs, 3 vertices, 1 channels)"


def test_signals_can_be_pickled(graphs):
    copy = pickle.loads(pickle.dumps(graphs))
    np.testing.assert_array_equal(copy.values, graphs.values)
    assert copy.domains.edges.tolist() == graphs.domains.edges.tolist()


def test_concatenated_images_share_domains_of_equal_shape(mixed):
    parts = [mixed[[1, 0]], mixed[2:], Signals.from_images(np.full((1, 1, 4), 9.0))]
    whole = Signals.concatenate(parts)
    assert [set(one.values.ravel()) for one in whole] == [{1.0}, {0.0}, {2.0}, {3.0}, {4.0}, {9.0}]
    shapes = whole.domains.shapes[whole.domain_of].tolist()
    assert shapes == [[3, 3], [2, 3], [2, 3], [3, 3], [2, 3], [1, 4]]
    assert len(whole.domains) == 3


def test_concatenated_graphs_are_the_graphs_in_order(graphs):
    whole = Signals.concatenate([graphs[2], graphs[:2]])
    assert values_of(whole) == [values_of(graphs)[n] for n in (2, 0, 1)]
    for joined, n in zip(whole, (2, 0, 1), strict=True):
        for field in ("vertex_offsets", "edges", "edge_offsets", "edge_lengths", "coordinates"):
            expected = getattr(graphs[n].domains, field)
            np.testing.assert_array_equal(getattr(joined.domains, field), expected)


def test_incompatible_signals_cannot_be_concatenated(graphs, mixed):
    with pytest.raises(ValueError, match="nothing to concatenate"):
        Signals.concatenate([])
    with pytest.raises(ValueError, match="part 1: domains are Grids, those of part 0 are Graphs"):
        Signals.concatenate([graphs, mixed])
    with pytest.raises(ValueError, match="part 1: 3 channels, part 0 has 1"):
        Signals.concatenate([mixed, Signals.from_images(np.zeros((1, 2, 2, 3)))])
    with pytest.raises(ValueError, match="part 1: edge_lengths are missing"):
        Signals.concatenate([graphs, Signals.from_graphs([np.zeros(3)], [TRIANGLE])])
    with pytest.raises(ValueError, match="part 0: coordinates are missing"):
        Signals.concatenate([Signals.from_graphs([np.zeros(3)], [TRIANGLE], [[1.0] * 3]), graphs])


@pytest.mark.parametrize("splitter", [KFold(3), StratifiedKFold(2, shuffle=True, random_state=0)])
def test_splitters_partition_signals(images, splitter):
    signals = Signals.from_images(images)
    labels = np.array([0, 1] * 3)
    seen = []
    for train, test in splitter.split(signals, labels):
        assert len(signals[train]) + len(signals[test]) == 6
        np.testing.assert_array_equal(signals[train].values.reshape(-1, 4, 3), images[train])
        seen.extend(test.tolist())
    assert sorted(seen) == list(range(6))


def test_train_test_split_keeps_signals_and_labels_together(graphs):
    many = Signals.concatenate([graphs] * 4)
    labels = many.vertex_counts.copy()
    train, test, train_labels, test_labels = train_test_split(many, labels, random_state=0)
    assert len(train) + len(test) == 12
    assert train.vertex_counts.tolist() == train_labels.tolist()
    assert test.vertex_counts.tolist() == test_labels.tolist()


def test_signals_are_indexable_for_scikit_learn(images):
    signals = Signals.from_images(images)
    assert indexable(signals, np.zeros(6))[0] is signals
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        indexable(signals, np.zeros(5))
    chosen = _safe_indexing(signals, np.array([4, 2]))
    np.testing.assert_array_equal(chosen.values.reshape(2, 4, 3), images[[4, 2]])


def test_grids_have_positions():
    signals = Signals.from_images([np.zeros((2, 3)), np.zeros((1, 2))])
    assert isinstance(signals.domains, Grids)
    rows_of_one_by_two = [[0, 0], [1, 0]]
    rows_of_two_by_three = [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]]
    assert signals.domains.positions.tolist() == rows_of_one_by_two + rows_of_two_by_three


FACE = Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])


def test_signals_on_meshes_are_indexed_and_concatenated():
    larger = Mesh([*FACE.vertices, [1, 1, 0]], [[0, 1, 2], [1, 3, 2]])
    signals = Signals.on_meshes([[1.0, 2.0, 3.0], np.ones((4, 1))], [FACE, larger])
    assert signals.vertex_counts.tolist() == [3, 4]
    assert signals[1].domains.meshes == (larger,)
    both = Signals.concatenate([signals[1], signals[0]])
    assert both.domains.meshes == (larger, FACE)
    assert both.values[4:, 0].tolist() == [1.0, 2.0, 3.0]
