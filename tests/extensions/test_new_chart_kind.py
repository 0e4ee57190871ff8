"""A new kind of chart: graphs on which distance is the number of edges, up to a largest number."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import gcgp
from evidence_checks import check_evidence_sums
from gcgp import GCGPClassifier, Patch, PatchKernel, Signals
from gcgp.domain import Graphs
from gcgp.weighting import Radial

MAX_HOPS = 2


@dataclass(frozen=True, eq=False)
class HopGraphs(Graphs):
    """Graphs that also measure distance in hops, whatever the lengths of edges; two at most."""

    @property
    def chart_kinds(self):
        return (*super().chart_kinds, "near")

    def chart(self, coordinates, reach, kind="auto", rows=None):
        if kind != "near":
            return super().chart(coordinates, reach, kind, rows)
        unit = replace(self, edge_lengths=np.ones(len(self.edges)))
        return Graphs.chart(unit, coordinates, min(reach, MAX_HOPS), "path", rows)


def rings(count=24):
    """Rings with random edge lengths; a vertex of class 1 has a large value two hops from another."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 2
    values, edges, lengths = [], [], []
    for label in labels:
        size = int(rng.integers(6, 9))
        values.append(0.1 * rng.random(size))
        values[-1][[0, 1 + label]] = 1.0
        edges.append([[i, (i + 1) % size] for i in range(size)])
        lengths.append(rng.uniform(0.5, 50.0, size))
    signals = Signals.from_graphs(values, edges, lengths)
    graphs = signals.domains
    hop_graphs = HopGraphs(
        graphs.vertex_offsets, graphs.edges, graphs.edge_offsets, graphs.edge_lengths, graphs.coordinates
    )
    return replace(signals, domains=hop_graphs), labels


SIGNALS, LABELS = rings()
OPTIONS = {
    "n_inducing": 20,
    "kernel": PatchKernel(lengthscale=0.5, variance=10.0),
    "patch": Patch(bin_counts=False),
}


@pytest.fixture(scope="module")
def model():
    weighting = Radial([0.0, 1.0, 2.0], 0.3)
    return GCGPClassifier(weighting, chart="near", **OPTIONS).fit(SIGNALS[:16], LABELS[:16])


def test_the_chart_counts_hops():
    chart = SIGNALS[:1].domains.chart(["rho"], 10.0, "near")
    assert set(chart.coordinates["rho"]) == {0.0, 1.0, 2.0}
    assert np.diff(chart.row_offsets).tolist() == [5] * SIGNALS.vertex_counts[0]


def test_the_estimator_uses_the_chart(model):
    assert model.features_.terms[0].convolution.chart == "near"
    assert model.score(SIGNALS[16:], LABELS[16:]) == 1.0
    check_evidence_sums(model, SIGNALS[16:], 1e-5)


def test_lengths_of_edges_do_not_matter(model):
    domains = SIGNALS.domains
    doubled = replace(SIGNALS, domains=replace(domains, edge_lengths=2 * domains.edge_lengths))
    np.testing.assert_allclose(model.predict_proba(doubled), model.predict_proba(SIGNALS), atol=1e-7)
    path = GCGPClassifier(Radial([0.0, 20.0]), chart="path", **OPTIONS).fit(SIGNALS[:16], LABELS[:16])
    assert not np.allclose(path.predict_proba(doubled), path.predict_proba(SIGNALS))


def test_a_saved_model_can_be_loaded(model, tmp_path):
    model.save(tmp_path / "model.gcgp")
    loaded = gcgp.load(tmp_path / "model.gcgp")
    np.testing.assert_array_equal(loaded.predict_proba(SIGNALS), model.predict_proba(SIGNALS))


def test_other_graphs_do_not_have_it():
    plain = Signals.on_graph(np.random.default_rng(0).random((4, 3)), [[0, 1], [1, 2]])
    with pytest.raises(ValueError, match="kind='near' is not known; expected one of"):
        GCGPClassifier(chart="near", **OPTIONS).fit(plain, [0, 1, 0, 1])
