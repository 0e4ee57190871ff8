"""Graphs from and to PyTorch Geometric."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.loader import DataListLoader, DataLoader

from gcgp.domain import Signals, as_signals

BOTH_WAYS = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def item(vertices=3, edge_index=BOTH_WAYS, **fields):
    x = torch.arange(2.0 * vertices).reshape(vertices, 2)
    return Data(x=x, edge_index=edge_index, **fields)


def test_values_edges_positions_and_weights_are_read():
    weights = torch.tensor([1.0, 1.0, 2.0, 2.0])
    data = [item(pos=torch.eye(3, 2), edge_weight=weights), item(4, pos=torch.eye(4, 2), edge_weight=weights)]
    signals = Signals.from_pyg(data, edge_lengths="edge_weight")
    assert signals.vertex_counts.tolist() == [3, 4]
    assert signals.values.dtype == np.float32
    assert signals.values.tolist() == [*data[0].x.tolist(), *data[1].x.tolist()]
    assert signals.domains.edges.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]] * 2
    assert signals.domains.edge_lengths.tolist() == [1.0, 1.0, 2.0, 2.0] * 2
    assert signals.domains.coordinates[:3].tolist() == [[1, 0], [0, 1], [0, 0]]


def test_positions_and_weights_may_be_absent_and_edges_may_be_none():
    signals = Signals.from_pyg([item(), item(1, torch.zeros((2, 0), dtype=torch.long))])
    assert signals.domains.coordinates is None
    assert signals.domains.edge_lengths is None
    assert signals.domains.degrees().tolist() == [1, 2, 1, 0]


def test_any_iterable_and_tensors_with_gradients_are_read():
    data = item()
    data.x = data.x.double().requires_grad_()
    signals = Signals.from_pyg(iter([data]))
    assert signals.values.dtype == np.float64
    assert signals.values.tolist() == data.x.tolist()


def test_errors_name_missing_and_misshapen_fields():
    with pytest.raises(ValueError, match="graph 1: x is missing"):
        Signals.from_pyg([item(), Data(edge_index=BOTH_WAYS, num_nodes=3)])
    with pytest.raises(ValueError, match="graph 0: edge_index is missing"):
        Signals.from_pyg([Data(x=torch.zeros(3, 1))])
    with pytest.raises(ValueError, match=r"graph 0: edge_index must have shape \[2, E\], got \(4, 2\)"):
        Signals.from_pyg([item(edge_index=BOTH_WAYS.T)])
    with pytest.raises(ValueError, match="graph 1: pos is missing, but other graphs have it"):
        Signals.from_pyg([item(pos=torch.eye(3, 2)), item()])
    with pytest.raises(ValueError, match="graph 0: edge_weight is missing, but other graphs have it"):
        Signals.from_pyg([item(), item(edge_weight=torch.ones(4))], edge_lengths="edge_weight")
    with pytest.raises(ValueError, match=r"graph 0: edges\[3\] is \[2, 1\], but its vertices are 0 to 1"):
        Signals.from_pyg([item(2, torch.tensor([[0, 1, 0, 2], [1, 0, 1, 1]]))])
    with pytest.raises(ValueError, match=r"signal 0: values at \[0, 0\] is nan"):
        Signals.from_pyg([Data(x=torch.full((3, 1), torch.nan), edge_index=BOTH_WAYS)])


@pytest.mark.parametrize("weights", [None, [[2.0, 0.5, 1.0], [3.0]]])
@pytest.mark.parametrize("coordinates", [None, [np.eye(3, 2), np.ones((2, 2))]])
def test_round_trips_keep_charts(weights, coordinates):
    values = [np.arange(6, dtype=np.float32).reshape(3, 2), np.ones((2, 2), dtype=np.float32)]
    signals = Signals.from_graphs(values, [[[0, 1], [1, 2], [0, 2]], [[0, 1]]], weights, coordinates)
    again = Signals.from_pyg(signals.to_pyg())
    np.testing.assert_array_equal(again.values, signals.values)
    assert again.values.dtype == signals.values.dtype
    assert (again.domains.positions is None) == (coordinates is None)
    charts = [one.domains.chart(["rho", "degree"], 9.0, "path") for one in (signals, again)]
    np.testing.assert_array_equal(charts[0].row_offsets, charts[1].row_offsets)
    np.testing.assert_array_equal(charts[0].neighbors, charts[1].neighbors)
    for name in ("rho", "degree"):
        np.testing.assert_array_equal(charts[0].coordinates[name], charts[1].coordinates[name])


def test_edges_are_written_in_both_directions():
    signals = Signals.from_graphs([np.zeros(3)], [[[0, 1], [2, 1]]], [[1.0, 2.0]], [np.eye(3, 2)])
    (data,) = signals.to_pyg()
    assert data.is_undirected()
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 2, 0, 1]]
    assert data.edge_length.tolist() == [1.0, 2.0, 1.0, 2.0]
    assert data.edge_weight is None
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


def test_images_cannot_be_written_as_graphs():
    with pytest.raises(ValueError, match="to_pyg needs signals on graphs; these are on grids"):
        Signals.from_images(np.zeros((1, 2, 2))).to_pyg()


def test_round_trips_add_no_edges():
    signals = Signals.from_graphs(
        [np.ones(3)], [[[0, 1], [1, 0], [2, 1], [2, 2]]], edge_lengths=[[3.0, 2.0, 5.0, 1.0]]
    )
    once = signals.to_pyg()
    twice = Signals.from_pyg(once).to_pyg()
    assert twice[0].edge_index.tolist() == once[0].edge_index.tolist()
    assert twice[0].edge_length.tolist() == once[0].edge_length.tolist()
    assert once[0].edge_length[once[0].edge_index[0] == 0].tolist() == [2.0]


def labeled(count=5):
    """Graphs of 2, 3, … vertices whose first value and label are their number."""
    chains = [torch.arange(n + 1).repeat(2, 1) + torch.tensor([[0], [1]]) for n in range(count)]
    return [
        Data(x=torch.full((n + 2, 1), float(n)), edge_index=chain, y=torch.tensor([10 * n]))
        for n, chain in enumerate(chains)
    ]


class InMemory(InMemoryDataset):
    def __init__(self, items):
        super().__init__(None)
        self.data, self.slices = self.collate(items)


@pytest.mark.parametrize(
    "make",
    [
        Batch.from_data_list,
        lambda items: DataLoader(items, batch_size=2),
        lambda items: DataListLoader(items, batch_size=2),
        lambda items: [Batch.from_data_list(items[:2]), *items[2:]],
        InMemory,
    ],
    ids=["batch", "loader", "list loader", "mixed list", "dataset"],
)
def test_batches_and_loaders_are_split_into_their_graphs(make):
    signals, labels = Signals.from_pyg(make(labeled()), return_y=True)
    assert signals.vertex_counts.tolist() == [2, 3, 4, 5, 6]
    assert signals.domains.degrees()[:5].tolist() == [1, 1, 1, 2, 1]
    assert labels.tolist() == [0, 10, 20, 30, 40]
    direct = as_signals(make(labeled()))
    np.testing.assert_array_equal(direct.values, signals.values)
    np.testing.assert_array_equal(direct.offsets, signals.offsets)


def test_a_single_graph_is_a_set_of_one():
    signals, labels = Signals.from_pyg(labeled()[2], return_y=True)
    assert signals.vertex_counts.tolist() == [4]
    assert labels.tolist() == [20]
    assert len(as_signals(labeled()[2])) == 1


def test_a_shuffled_loader_gives_labels_in_the_same_order_or_an_error():
    shuffled = DataLoader(labeled(), batch_size=2, shuffle=True)
    signals, labels = Signals.from_pyg(shuffled, return_y=True)
    assert (10 * signals.values[signals.offsets[:-1], 0]).tolist() == labels.tolist()
    for read in (Signals.from_pyg, as_signals):
        with pytest.raises(ValueError, match=r"shuffles its graphs.*return_y=True"):
            read(shuffled)


def test_a_batch_that_cannot_be_split_raises():
    fields = {"x": torch.ones(3, 1), "edge_index": torch.tensor([[0], [1]]), "batch": torch.tensor([0, 0, 1])}
    for joined in (Data(**fields), Batch(**fields)):
        with pytest.raises(ValueError, match=r"graph 0: a batch of several graphs.*pass the list of graphs"):
            Signals.from_pyg([joined])


def test_graphs_without_values_come_with_advice():
    bare = Data(edge_index=BOTH_WAYS, num_nodes=3)
    with pytest.raises(ValueError, match=r"graph 0: x is missing.*degree.*torch.ones"):
        Signals.from_pyg(bare)
    mesh = Data(pos=torch.eye(3), face=torch.tensor([[0], [1], [2]]), x=torch.ones(3, 1))
    with pytest.raises(ValueError, match=r"graph 0: edge_index is missing.*Signals.on_meshes"):
        Signals.from_pyg([mesh])
    with pytest.raises(TypeError, match=r"graph 0: a HeteroData.*to_homogeneous"):
        Signals.from_pyg([HeteroData()])
    with pytest.raises(TypeError, match="expected PyTorch Geometric data, got int"):
        Signals.from_pyg(3)


@pytest.mark.parametrize("field", ["edge_weight", "edge_attr"])
def test_edge_attributes_are_lengths_only_if_the_caller_says_so(field):
    data = [item(**{field: torch.tensor([1.0, 1.0, 2.0, 2.0])[:, None]}) for _ in range(3)]
    with pytest.warns(UserWarning, match=f"does not use {field}; .*edge_lengths='{field}'") as caught:
        signals = Signals.from_pyg(data)
    assert len(caught) == 1
    assert signals.domains.edge_lengths is None
    named = Signals.from_pyg(data, edge_lengths=field)
    assert named.domains.edge_lengths.tolist() == [1.0, 1.0, 2.0, 2.0] * 3
    assert Signals.from_pyg(data, edge_lengths=False).domains.edge_lengths is None


def test_edge_lengths_are_present_and_one_per_edge():
    with pytest.raises(ValueError, match="graph 0: edge_attr is missing"):
        Signals.from_pyg([item()], edge_lengths="edge_attr")
    with pytest.raises(ValueError, match=r"graph 0: edge_attr must have shape .* got \(4, 2\)"):
        Signals.from_pyg([item(edge_attr=torch.ones(4, 2))], edge_lengths="edge_attr")
    with pytest.raises(ValueError, match=r"graph 0: edge_lengths\[1\] is -1.0; it must not be negative"):
        Signals.from_pyg([item(edge_weight=torch.tensor([1.0, -1, 1, 1]))], edge_lengths="edge_weight")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([torch.tensor(1), torch.tensor(0)], [1, 0]),
        ([torch.tensor([1.5]), torch.tensor([[0.5]])], [1.5, 0.5]),
        ([torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])], [[1, 2], [3, 4]]),
        (["a", "b"], ["a", "b"]),
        ([3, 4], [3, 4]),
    ],
)
def test_labels_of_graphs(labels, expected):
    _, actual = Signals.from_pyg([item(y=label) for label in labels], return_y=True)
    assert actual.tolist() == expected


def test_labels_of_vertices_raise():
    with pytest.raises(ValueError, match="graph 1: y is missing"):
        Signals.from_pyg([item(y=torch.tensor(1)), item()], return_y=True)
    with pytest.raises(ValueError, match=r"graph 0: y has shape \(3,\).*one label per graph"):
        Signals.from_pyg([item(y=torch.arange(3))], return_y=True)
