"""A new kind of domain is one class: grids whose opposite borders are joined."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from gcgp.domain import Chart, Domains, Graphs, Grids, Signals
from gcgp.patches import Convolution
from gcgp.weighting import Polar


@pytest.fixture(scope="module")
def torus_class():
    @dataclass(frozen=True, eq=False)
    class Torus(Domains):
        """One torus grid of a fixed shape, shared by all signals."""

        shape: tuple[int, int]
        coordinate_pattern: ClassVar[str] = "rho|theta"

        @property
        def vertex_counts(self) -> np.ndarray:
            return np.array([self.shape[0] * self.shape[1]])

        def take(self, indices: np.ndarray) -> Domains:
            return self

        @classmethod
        def concatenate(cls, parts: Sequence[Domains]) -> tuple[Domains, list[np.ndarray]]:
            return parts[0], [np.zeros(1, dtype=np.int64) for _ in parts]

        def arrays(self) -> list[np.ndarray | None]:
            return [np.array(self.shape)]

        def chart(self, coordinates, reach, kind="auto", rows=None) -> Chart:
            height, width = self.shape
            row, column = np.indices(self.shape).reshape(2, -1)
            dy = (row - row[:, None] + height // 2) % height - height // 2
            dx = (column - column[:, None] + width // 2) % width - width // 2
            rho = np.hypot(dx, dy)
            vertices, neighbors = np.nonzero(rho <= reach)
            columns = {"rho": rho, "theta": np.where(rho > 0, np.arctan2(dy, dx), np.nan)}
            chart = Chart(
                np.searchsorted(vertices, np.arange(len(row) + 1)),
                neighbors,
                {name: columns[name][vertices, neighbors] for name in coordinates},
            )
            return chart if rows is None else chart.restricted(rows)

    yield Torus
    del Domains.kinds["Torus"]


@pytest.fixture
def signals(torus_class):
    values = np.random.default_rng(0).normal(size=(2 * 35, 1))
    return Signals(values, np.array([0, 35, 70]), torus_class((5, 7)), np.zeros(2, dtype=np.int64))


def test_shifted_signals_have_shifted_patches(signals):
    convolution = Convolution(Polar([1.0, 2.0], 4, 0.6), dtype=torch.float64)
    shifted = np.roll(signals.values.reshape(2, 5, 7), (2, 3), axis=(1, 2)).reshape(-1, 1)
    moved = Signals(shifted, signals.offsets, signals.domains, signals.domain_of)
    patches, other = (
        convolution.patches(each).values.detach().reshape(2, 5, 7, -1) for each in (signals, moved)
    )
    torch.testing.assert_close(other, patches.roll((2, 3), (1, 2)))


def test_signals_are_indexed_and_concatenated(signals):
    both = Signals.concatenate([signals[1], signals[0]])
    assert both.vertex_counts.tolist() == [35, 35]
    assert both.values[:35].tolist() == signals.values[35:].tolist()
    assert repr(both) == "Signals(2 signals on torus, 35 vertices, 1 channels)"


def test_defaults_of_a_new_domain(signals, torus_class):
    torus = signals.domains
    assert Domains.kinds["Torus"] is torus_class
    assert (len(torus), torus.positions, torus.position_dimensions, torus.measure) == (1, None, 0, None)
    assert torus.offers("theta")
    assert not torus.offers("offset")
    assert torus.default_radii() == ([1.0, 2.0, 3.0], 0.5)
    assert torus.vertex_shape(0) == (35,)
    torus.check_signature(torus.signature(["path"], True), signals.domain_of)


def test_extent_is_the_longest_side_of_the_bounding_box():
    coordinates = [np.array([[0.0, 0.0], [1.0, 4.0]]), np.array([[2.0, 5.0], [4.0, 5.0]])]
    graphs = Signals.from_graphs([np.zeros(2)] * 2, [[]] * 2, None, coordinates).domains
    assert graphs.extent() == 3.0
    assert Grids(np.array([[4, 9], [5, 5]])).extent() == 7.0


def test_default_radii_reach_a_quarter_of_the_extent():
    radii, width = Grids(np.array([[28, 28]])).default_radii()
    assert radii == [1.0, 3.0, 5.0, 7.0]
    assert width == 1.5


def test_signatures_of_graphs():
    with_lengths = Signals.from_graphs([np.zeros(2)], [[[0, 1]]], [[2.0]]).domains
    plain = Signals.from_graphs([np.zeros(2)], [[[0, 1]]]).domains
    located = Signals.from_graphs([np.zeros(2)], [[[0, 1]]], None, [np.zeros((2, 3))]).domains
    domain_of = np.zeros(1, dtype=np.int64)
    for domains in (with_lengths, plain, located):
        domains.check_signature(domains.signature(["path"], False), domain_of)
    with pytest.raises(ValueError, match="X: graphs with edge_lengths, but training had graphs without"):
        with_lengths.check_signature(plain.signature(["path"], False), domain_of)
    with pytest.raises(ValueError, match="graphs with 3-D coordinates, but training had graphs without"):
        located.check_signature(plain.signature(["path"], False), domain_of)
    assert isinstance(located, Graphs)


def test_signatures_of_images():
    images = Signals.from_images([np.zeros((2, 3)), np.zeros((4, 4))])
    trained = Signals.from_images(np.zeros((2, 2, 3))).domains
    images.domains.check_signature(trained.signature(["path"], False), images.domain_of)
    with pytest.raises(ValueError, match=r"X: image 1 has shape \[4, 4\], but training had \[2, 3\]"):
        images.domains.check_signature(trained.signature(["path"], True), images.domain_of)
