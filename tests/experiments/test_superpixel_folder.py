"""Superpixel graphs from a folder of PyG's `MNISTSuperpixels`."""

import json
import pickle

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, InMemoryDataset

from experiments import superpixel_folder
from experiments.command_line import main
from experiments.runs import Results, Settings
from experiments.superpixel_folder import published_superpixels


@pytest.fixture(autouse=True)
def no_loaded_graphs():
    superpixel_folder._load.cache_clear()


def graphs(count, seed):
    """Dicts as in the raw file, of graphs with five vertices; the class decides where they are bright."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    for i in range(count):
        label = torch.tensor([i % 2])
        pos = 20 * torch.rand(5, 2, generator=generator)
        x = ((pos[:, :1] > 10) == bool(label)).float()
        yield {"x": x, "edge_index": edges, "pos": pos, "y": label}


def write_raw(folder, train=20, test=8):
    (folder / "raw").mkdir(parents=True)
    torch.save([list(graphs(train, 0)), list(graphs(test, 1))], folder / "raw" / "MNISTSuperpixels.pt")


def write_processed(folder, train=20, test=8):
    (folder / "processed").mkdir(parents=True)
    for name, count, seed in (("train", train, 0), ("test", test, 1)):
        data = [Data(**graph) for graph in graphs(count, seed)]
        InMemoryDataset.save(data, folder / "processed" / f"{name}_data.pt")


@pytest.mark.parametrize("write", [write_raw, write_processed])
def test_graphs_are_those_of_the_files(tmp_path, write):
    write(tmp_path)
    split = published_superpixels(tmp_path, None, 0)
    assert (len(split.train), len(split.test)) == (20, 8)
    assert split.labels.tolist() == [0, 1] * 10
    expected = list(graphs(8, 1))[3]
    graph = split.test[3:4]
    np.testing.assert_array_equal(graph.values, expected["x"])
    np.testing.assert_array_equal(graph.domains.coordinates, expected["pos"])
    assert graph.domains.edges.tolist() == [[0, 1], [1, 2], [3, 4]]
    assert "Monti et al." in split.differs[0]


def test_graphs_are_drawn_per_class(tmp_path):
    write_raw(tmp_path)
    first, second = (published_superpixels(tmp_path, 3, seed) for seed in (0, 1))
    assert sorted(first.labels) == [0] * 3 + [1] * 3
    assert len(first.test) == 8
    assert not np.array_equal(first.train.values, second.train.values)


class Malicious:
    """An object that creates a file when it is unpickled without restrictions."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("protocol", ["torch", "pickle"])
def test_a_file_with_code_is_refused(tmp_path, protocol):
    (tmp_path / "raw").mkdir()
    path, victim = tmp_path / "raw" / "MNISTSuperpixels.pt", tmp_path / "victim"
    if protocol == "torch":
        torch.save([Malicious(victim)], path)
    else:
        path.write_bytes(pickle.dumps([Malicious(victim)], protocol=2))
    with pytest.raises(ValueError, match=r"MNISTSuperpixels.pt: not a file of tensors only"):
        published_superpixels(tmp_path, None, 0)
    assert not victim.exists()


def test_damaged_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"neither raw/MNISTSuperpixels.pt nor processed/train_data"):
        published_superpixels(tmp_path, None, 0)
    (tmp_path / "raw").mkdir()
    path = tmp_path / "raw" / "MNISTSuperpixels.pt"
    train = list(graphs(3, 0))
    del train[1]["pos"]
    torch.save([train, train], path)
    with pytest.raises(ValueError, match="graph 1: pos is missing"):
        published_superpixels(tmp_path, None, 0)
    torch.save([train], path)
    with pytest.raises(ValueError, match="expected a list of training graphs and one of test graphs"):
        published_superpixels(tmp_path, None, 0)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="not a file of tensors only"):
        published_superpixels(tmp_path, None, 0)


def test_results_of_other_graphs_are_not_mixed(tmp_path):
    own, published = Settings(), Settings(graphs="anywhere")
    contents = [
        Results(tmp_path / "x.json", "superpixels", settings).content for settings in (own, published)
    ]
    assert contents[0]["settings"] == {"per_class": None, "inducing": None}
    assert contents[1]["settings"] == {"per_class": None, "inducing": None, "graphs": "MNISTSuperpixels"}


def test_the_command_with_published_graphs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_raw(tmp_path / "graphs", train=60)
    options = ["--graphs", "graphs", "--per-class", "20", "--inducing", "20", "--report", "report.md"]
    assert main(["superpixels", "--model", "gcgp-best", *options]) == 0
    (run,) = json.loads((tmp_path / "results" / "superpixels.json").read_text())["runs"].values()
    assert (run["train"], run["test"]) == (40, 8)
    report = (tmp_path / "report.md").read_text()
    assert (
        "`python -m experiments superpixels --per-class 20 --inducing 20 --graphs MNISTSuperpixels`" in report
    )
    assert "as PyG distributes them" in capsys.readouterr().out
