"""To and from PyTorch Geometric, with its own `Data`."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from gcgp.domain import Signals

BOTH_WAYS = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def item(vertices=3, edge_index=BOTH_WAYS, **fields):
    x = torch.arange(2.0 * vertices).reshape(vertices, 2)
    return Data(x=x, edge_index=edge_index, **fields)


def test_values_edges_positions_and_weights_are_read():
    weights = torch.tensor([1.0, 1.0, 2.0, 2.0])
    data = [item(pos=torch.eye(3, 2), edge_weight=weights), item(4, pos=torch.eye(4, 2), edge_weight=weights)]
    signals = Signals.from_pyg(data)
    assert signals.vertex_counts.tolist() == [3, 4]
    assert signals.values.dtype == np.float32
    assert signals.values.tolist() == [*data[0].x.tolist(), *data[1].x.tolist()]
    assert signals.domains.edges.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]] * 2
    assert signals.domains.edge_weights.tolist() == [1.0, 1.0, 2.0, 2.0] * 2
    assert signals.domains.coordinates[:3].tolist() == [[1, 0], [0, 1], [0, 0]]


def test_positions_and_weights_may_be_absent_and_edges_may_be_none():
    signals = Signals.from_pyg([item(), item(1, torch.zeros((2, 0), dtype=torch.long))])
    assert signals.domains.coordinates is None
    assert signals.domains.edge_weights is None
    assert signals.domains.degrees().tolist() == [1, 2, 1, 0]


def test_any_iterable_and_tensors_with_gradients_are_read():
    data = item()
    data.x = data.x.double().requires_grad_()
    signals = Signals.from_pyg(iter([data]))
    assert signals.values.dtype == np.float64
    assert signals.values.tolist() == data.x.tolist()


def test_what_is_missing_or_misshapen_is_named():
    with pytest.raises(ValueError, match="graph 1: its x is missing"):
        Signals.from_pyg([item(), Data(edge_index=BOTH_WAYS, num_nodes=3)])
    with pytest.raises(ValueError, match="graph 0: its edge_index is missing"):
        Signals.from_pyg([Data(x=torch.zeros(3, 1))])
    with pytest.raises(ValueError, match=r"graph 0: edge_index must have shape \[2, E\], got \(4, 2\)"):
        Signals.from_pyg([item(edge_index=BOTH_WAYS.T)])
    with pytest.raises(ValueError, match="graph 1: its pos is missing, though others have it"):
        Signals.from_pyg([item(pos=torch.eye(3, 2)), item()])
    with pytest.raises(ValueError, match="graph 0: its edge_weight is missing, though others have it"):
        Signals.from_pyg([item(), item(edge_weight=torch.ones(4))])
    with pytest.raises(ValueError, match=r"graph 0: edges\[3\] is \[2, 1\], but its vertices are 0 to 1"):
        Signals.from_pyg([item(2, torch.tensor([[0, 1, 0, 2], [1, 0, 1, 1]]))])
    with pytest.raises(ValueError, match=r"signal 0: values at \[0, 0\] is nan"):
        Signals.from_pyg([Data(x=torch.full((3, 1), torch.nan), edge_index=BOTH_WAYS)])


@pytest.mark.parametrize("weights", [None, [[2.0, 0.5, 1.0], [3.0]]])
@pytest.mark.parametrize("coordinates", [None, [np.eye(3, 2), np.ones((2, 2))]])
def test_there_and_back_gives_the_same_charts(weights, coordinates):
    values = [np.arange(6, dtype=np.float32).reshape(3, 2), np.ones((2, 2), dtype=np.float32)]
    signals = Signals.from_graphs(values, [[[0, 1], [1, 2], [0, 2]], [[0, 1]]], weights, coordinates)
    again = Signals.from_pyg(signals.to_pyg())
    np.testing.assert_array_equal(again.values, signals.values)
    assert again.values.dtype == signals.values.dtype
    assert (again.domains.locations is None) == (coordinates is None)
    charts = [one.domains.chart(["rho", "degree"], 9.0, "path") for one in (signals, again)]
    np.testing.assert_array_equal(charts[0].row_offsets, charts[1].row_offsets)
    np.testing.assert_array_equal(charts[0].neighbours, charts[1].neighbours)
    for name in ("rho", "degree"):
        np.testing.assert_array_equal(charts[0].coordinates[name], charts[1].coordinates[name])


def test_every_edge_is_written_in_both_directions():
    signals = Signals.from_graphs([np.zeros(3)], [[[0, 1], [2, 1]]], [[1.0, 2.0]], [np.eye(3, 2)])
    (data,) = signals.to_pyg()
    assert data.is_undirected()
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 2, 0, 1]]
    assert data.edge_weight.tolist() == [1.0, 2.0, 1.0, 2.0]
    assert data.pos.dtype == data.x.dtype == torch.float64
    assert data.validate(raise_on_error=True)


def test_signals_on_a_shared_graph_become_separate_items():
    signals = Signals.on_graph(np.arange(6).reshape(2, 3), [[0, 1]])
    first, second = signals.to_pyg()
    assert first.x.ravel().tolist() == [0, 1, 2]
    assert second.x.ravel().tolist() == [3, 4, 5]
    assert first.edge_index.tolist() == second.edge_index.tolist() == [[0, 1], [1, 0]]
    assert first.pos is None


def test_chosen_graphs_are_written_in_their_order():
    signals = Signals.from_graphs([np.zeros(2), np.ones(3)], [[[0, 1]], [[0, 2]]])
    larger, smaller = signals[[1, 0]].to_pyg()
    assert larger.x.ravel().tolist() == [1, 1, 1]
    assert larger.edge_index.tolist() == [[0, 2], [2, 0]]
    assert smaller.x.ravel().tolist() == [0, 0]
    assert smaller.edge_index.tolist() == [[0, 1], [1, 0]]


def test_images_are_not_written_as_graphs():
    with pytest.raises(ValueError, match="to_pyg needs signals on graphs; these are on grids"):
        Signals.from_images(np.zeros((1, 2, 2))).to_pyg()


def test_round_trips_add_no_edges():
    signals = Signals.from_graphs(
        [np.ones(3)], [[[0, 1], [1, 0], [2, 1], [2, 2]]], edge_weights=[[3.0, 2.0, 5.0, 1.0]]
    )
    once = signals.to_pyg()
    twice = Signals.from_pyg(once).to_pyg()
    assert twice[0].edge_index.tolist() == once[0].edge_index.tolist()
    assert twice[0].edge_weight.tolist() == once[0].edge_weight.tolist()
    assert once[0].edge_weight[once[0].edge_index[0] == 0].tolist() == [2.0]
