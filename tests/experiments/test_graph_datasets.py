"""The table of graphs: reading TU files, folds, and the command."""

import json

import numpy as np
import pytest

from experiments import graph_datasets
from experiments.command_line import main
from experiments.runs import Run, Settings


@pytest.fixture(autouse=True)
def no_other_data(monkeypatch):
    monkeypatch.delenv("GCGP_DATA", raising=False)
    graph_datasets.load_graphs.cache_clear()


def write_tu(folder, name="MUTAG", count=40, node_labels=True, attributes=False):
    """Rings (class -1) and paths (class 1) of different sizes; the labels of their vertices alternate."""
    folder = folder / "tu" / name
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    sizes = rng.integers(4, 8, count)
    starts = np.cumsum([0, *sizes])
    edges, classes = [], np.where(np.arange(count) % 2, 1, -1)
    for start, size, label in zip(starts[:-1], sizes, classes, strict=True):
        ends = [(i, i + 1) for i in range(size - 1)] + ([(0, size - 1)] if label < 0 else [])
        edges += [(start + a + 1, start + b + 1) for a, b in ends + [(b, a) for a, b in ends]]
    total = starts[-1]

    def write(part, rows):
        lines = [", ".join(map(str, np.atleast_1d(row))) for row in rows]
        (folder / f"{name}_{part}.txt").write_text("\n".join(lines) + "\n")

    write("A", rng.permutation(edges))
    write("graph_indicator", np.repeat(np.arange(count) + 1, sizes))
    write("graph_labels", classes)
    if node_labels:
        write("node_labels", np.arange(total) % 2 * 3)
    if attributes:
        write("node_attributes", np.arange(2 * total).reshape(total, 2) / 10)
    return folder, sizes, classes


def test_graphs_of_tu_files(tmp_path):
    folder, sizes, classes = write_tu(tmp_path, attributes=True)
    signals, labels = graph_datasets.load_graphs(folder)
    assert signals.vertex_counts.tolist() == sizes.tolist()
    assert labels.tolist() == classes.tolist()
    assert signals.channels == 4
    first, second = signals[0], signals[1]
    np.testing.assert_allclose(first.values[:2], [[1, 0, 0, 0.1], [0, 1, 0.2, 0.3]])
    ring = sorted(sorted(edge) for edge in first.domains.edges.tolist())
    size = int(sizes[0])
    assert ring == sorted([[i, i + 1] for i in range(size - 1)] + [[0, size - 1]])
    assert len(second.domains.edges) == sizes[1] - 1


def test_degrees_are_values_if_there_are_no_others(tmp_path):
    folder, sizes, _ = write_tu(tmp_path, node_labels=False)
    values = graph_datasets.load_graphs(folder)[0].values
    assert values[: sizes[0], 0].tolist() == [2.0] * sizes[0]
    assert values[sizes[0], 0] == 1.0  # the end of a path


def test_folds_are_disjoint_and_complete(tmp_path):
    write_tu(tmp_path)
    parts = [
        graph_datasets.split(Run("graphs", "gcgp", "MUTAG", fold, Settings(data=str(tmp_path))))
        for fold in range(graph_datasets.FOLDS)
    ]
    assert [len(part.train) for part in parts] == [36] * 10
    assert sum(len(part.test) for part in parts) == 40
    with pytest.raises(ValueError, match="seed 10: there are 10 folds"):
        graph_datasets.split(Run("graphs", "gcgp", "MUTAG", 10, Settings(data=str(tmp_path))))


def test_damaged_files_are_errors(tmp_path):
    folder, *_ = write_tu(tmp_path)
    (folder / "MUTAG_A.txt").write_text("1, 9999\n9999, 1\n")
    with pytest.raises(ValueError, match="MUTAG: an edge has a vertex outside 1 to"):
        graph_datasets.load_graphs(folder)
    (folder / "MUTAG_graph_indicator.txt").write_text("2\n1\n")
    with pytest.raises(ValueError, match="MUTAG: vertices are not in the order of the 40 graphs"):
        graph_datasets.load_graphs(folder)


def test_missing_datasets_are_skipped(tmp_path, capsys):
    write_tu(tmp_path, "NCI1")
    assert graph_datasets.conditions(Settings(data=str(tmp_path))) == ["NCI1"]
    assert "MUTAG skipped: no MUTAG_A.txt in the subfolder tu/MUTAG" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match="no data for this table"):
        graph_datasets.conditions(Settings(data=str(tmp_path / "tu")))


@pytest.mark.parametrize("model", ["gcgp", "gcgp-layers"])
def test_the_command_of_graphs(tmp_path, model):
    write_tu(tmp_path)
    options = ["--data", str(tmp_path), "--results", str(tmp_path / "results"), "--inducing", "20"]
    assert main(["graphs", "--model", model, *options, "--seeds", "1"]) == 0
    runs = json.loads((tmp_path / "results" / "graphs.json").read_text())["runs"]
    (run,) = runs.values()
    assert (run["train"], run["test"]) == (36, 4)
    assert run["error"] <= 0.25
