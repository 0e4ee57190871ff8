"""Input types: tensors, tables and sparse matrices are read, or raise errors that name them."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from gcgp._runtime.arrays import as_array
from gcgp.domain import Signals, as_signals
from gcgp.estimators.labels import labels_of

TRIANGLE = [[0, 1], [1, 2], [2, 0]]
VALUES = np.array([[1.0, 0.0], [0.0, 2.5], [0.0, 0.0]])


def halves(dtype):
    return torch.tensor(VALUES, dtype=dtype)


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (torch.tensor(VALUES, requires_grad=True), np.float64),
        (torch.tensor(VALUES, requires_grad=True) * 1, np.float64),
        (halves(torch.bfloat16), np.float32),
        (halves(torch.float16), np.float32),
        (halves(torch.float32).to_sparse(), np.float32),
        (list(torch.tensor(VALUES, requires_grad=True)), np.float64),
        (scipy.sparse.csr_matrix(VALUES), np.float64),
        (scipy.sparse.coo_array(VALUES), np.float64),
        (pd.DataFrame(VALUES), np.float64),
        (pd.DataFrame(VALUES).astype("Float64"), np.float64),
        (pd.DataFrame({"a": [1, 0, 0], "b": [0.0, 2.5, 0.0]}), np.float64),
        (VALUES.astype(object), np.float64),
        (VALUES.astype(np.longdouble), np.float64),
        (VALUES.astype(">f8"), np.float64),
        (VALUES.astype(">f4"), np.float32),
    ],
    ids=lambda given: type(given).__name__,
)
def test_values_of_a_graph(given, dtype):
    signals = Signals.from_graphs([given, given], [TRIANGLE] * 2)
    assert signals.values.dtype == dtype
    np.testing.assert_array_equal(signals.values, np.concatenate([VALUES, VALUES]))


def test_edges_lengths_and_coordinates_as_tensors_and_tables():
    lengths, coordinates = [1.0, 2.0, 0.5], np.eye(3, 2)
    tensors = Signals.from_graphs(
        [torch.ones(3)],
        [torch.tensor(TRIANGLE)],
        [torch.tensor(lengths, requires_grad=True)],
        [torch.tensor(coordinates, dtype=torch.bfloat16)],
    )
    tables = Signals.on_graph(
        pd.DataFrame(np.ones((1, 3))),
        pd.DataFrame(TRIANGLE, dtype="Int64"),
        pd.Series(lengths),
        pd.DataFrame(coordinates),
    )
    for signals in (tensors, tables):
        assert signals.domains.edges.tolist() == TRIANGLE
        assert signals.domains.edge_lengths.tolist() == lengths
        assert signals.domains.coordinates.tolist() == coordinates.tolist()


def test_images_as_tensors():
    stack = torch.arange(24.0).reshape(2, 3, 4)
    for given in (
        stack.requires_grad_(),
        list(stack),
        stack.to(torch.bfloat16),
        pd.Series(list(stack.detach().numpy())).tolist(),
    ):
        np.testing.assert_array_equal(Signals.from_images(given).values[:, 0], np.arange(24))


def test_signals_on_one_graph_as_a_sparse_table():
    signals = Signals.on_graph(scipy.sparse.csr_matrix(VALUES.T), TRIANGLE)
    np.testing.assert_array_equal(signals.values.reshape(2, 3), VALUES.T)


@pytest.mark.parametrize("make", [scipy.sparse.csr_matrix, scipy.sparse.coo_array])
def test_adjacency_matrices_are_edges(make):
    adjacency = make(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    signals = Signals.from_graphs([np.ones(3)], [adjacency])
    assert signals.domains.degrees().tolist() == [1, 2, 1]
    with pytest.raises(ValueError, match="graph 0: edges is a sparse matrix with an entry of 3"):
        Signals.from_graphs([np.ones(3)], [3 * adjacency])
    with pytest.raises(ValueError, match=r"graph 0: edges is a sparse matrix of shape \(2, 3\)"):
        Signals.from_graphs([np.ones(3)], [make(np.ones((2, 3)))])
    with pytest.raises(ValueError, match=r"graph 0: edges\[1\] is \[1, 2\], but its vertices are 0 to 1"):
        Signals.from_graphs([np.ones(2)], [make(np.diag([1, 1], 1))])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pd.Series([1.0, pd.NA, 2.0], dtype="Float64"), r"values at \[1(, 0)?\] is (nan|<NA>)"),
        (pd.DataFrame({"a": ["x", "y", "z"]}), "values"),
        (np.array([1.0, "x", 2.0], dtype=object), r"graph 0: values at \[1\] is a str; it must be a real"),
        (np.array([1.0, None, 2.0], dtype=object), r"graph 0: values at \[1\] is None; it must be finite"),
        ([10**30, 1, 2], "graph 0: values are too large"),
    ],
)
def test_errors_name_what_is_not_a_number(given, message):
    with pytest.raises(ValueError, match=message):
        Signals.from_graphs([given], [TRIANGLE])


@pytest.mark.parametrize(
    "given", [pd.DataFrame(VALUES), scipy.sparse.csr_matrix(VALUES), "abc", {0: VALUES}, 3]
)
def test_errors_for_one_graph_name_on_graph(given):
    with pytest.raises(TypeError, match=r"values: expected a list .* use Signals.on_graph\(values, edges\)"):
        Signals.from_graphs(given, [TRIANGLE])


def test_sparse_images_raise():
    with pytest.raises(TypeError, match=r"images: got a sparse matrix of shape \(3, 2\)"):
        Signals.from_images(scipy.sparse.csr_matrix(VALUES))


def test_arrays_are_not_copied():
    assert as_array(VALUES, "values") is VALUES


class Unreadable:
    """Raises an error however it is read."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("unreadable")

    def __iter__(self):
        raise NotImplementedError


@pytest.mark.parametrize("given", [Unreadable(), torch.empty(3, device="meta"), np.ma.masked, object()])
def test_unreadable_objects_are_value_or_type_errors(given):
    readers = [
        Signals.from_images,
        lambda item: Signals.from_graphs(item, [TRIANGLE]),
        lambda item: Signals.from_graphs([item], [TRIANGLE]),
        lambda item: Signals.from_graphs([np.ones(3)], [item]),
        lambda item: Signals.on_graph(item, TRIANGLE),
        lambda item: Signals.on_meshes([np.ones(3)], item),
        lambda item: Signals.concatenate([item]),
        Signals.from_pyg,
        Signals.from_networkx,
        as_signals,
        labels_of,
    ]
    for read in readers:
        with pytest.raises((ValueError, TypeError)):
            read(given)
