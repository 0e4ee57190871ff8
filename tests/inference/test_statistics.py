"""Sums over signals."""

from itertools import pairwise

import pytest
import torch

from gcgp.inference import Statistics

FIELDS = ("gram", "cross", "squares", "residual", "count")


def data(n=11, size=4, groups=3):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(n, size, generator=generator, dtype=torch.float64)
    targets, residual = torch.rand(2, n, generator=generator, dtype=torch.float64)
    return features, torch.arange(n) % groups, targets, residual


def collected(parts, groups=3, size=4):
    statistics = Statistics.empty(groups, size)
    for part in parts:
        statistics.add(*part)
    return statistics


def test_sums_are_the_loop_over_signals():
    whole = data()
    statistics = collected([whole])
    for g in range(3):
        members = [n for n in range(11) if n % 3 == g]
        features, _, targets, residual = (column[members] for column in whole)
        same = {
            "gram": sum(torch.outer(row, row) for row in features),
            "cross": sum(row * t for row, t in zip(features, targets, strict=True)),
            "squares": targets.square().sum(),
            "residual": residual.sum(),
            "count": torch.tensor(float(len(members)), dtype=torch.float64),
        }
        for field in FIELDS:
            torch.testing.assert_close(getattr(statistics, field)[g], same[field])


@pytest.mark.parametrize("cuts", [[3], [1, 2, 10], list(range(1, 11)), [0, 5, 5]])
def test_chunks_add_up(cuts):
    whole = data()
    bounds = [0, *cuts, 11]
    parts = [tuple(column[a:b] for column in whole) for a, b in pairwise(bounds)]
    at_once, in_chunks = collected([whole]), collected(parts)
    for field in FIELDS:
        torch.testing.assert_close(getattr(in_chunks, field), getattr(at_once, field), rtol=1e-12, atol=1e-12)


def test_groups_add_up_to_one_group():
    features, group, targets, residual = data()
    grouped = collected([(features, group, targets, residual)])
    single = collected([(features, torch.zeros_like(group), targets, residual)], groups=1)
    for field in FIELDS:
        torch.testing.assert_close(getattr(grouped, field).sum(dim=0), getattr(single, field)[0])


def test_group_without_signals_is_zero():
    features, group, targets, residual = data()
    statistics = collected([(features, 2 * (group > 0), targets, residual)], groups=4)
    for field in FIELDS:
        assert getattr(statistics, field)[[1, 3]].eq(0).all()
    assert statistics.count.tolist() == [4, 0, 7, 0]


def test_sums_are_in_double_precision():
    statistics = Statistics.empty(2, 3)
    assert all(getattr(statistics, field).dtype == torch.float64 for field in FIELDS)


def test_few_signals_lose_nothing_in_their_span():
    random = torch.Generator().manual_seed(0)
    features = torch.randn(6, 20, generator=random, dtype=torch.float64)
    group = torch.tensor([0, 0, 1, 1, 1, 0])
    statistics = Statistics.empty(2, 20)
    ones = torch.ones(6, dtype=torch.float64)
    statistics.add(features, group, ones, 0.1 * ones)
    basis = statistics.span()
    assert basis.shape == (20, 6)
    torch.testing.assert_close(basis.T @ basis, torch.eye(6, dtype=torch.float64))
    along = statistics.along(basis)
    torch.testing.assert_close(basis @ along.gram @ basis.T, statistics.gram)
    torch.testing.assert_close(along.cross @ basis.T, statistics.cross)
    assert torch.equal(along.count, statistics.count)


def test_principal_directions_capture_as_much_as_eigenvectors():
    random = torch.Generator().manual_seed(0)
    sizes = 0.5 ** torch.arange(30, dtype=torch.float64)
    features = torch.randn(500, 30, generator=random, dtype=torch.float64) * sizes
    turn = torch.linalg.qr(torch.randn(30, 30, generator=random, dtype=torch.float64)).Q
    statistics = Statistics.empty(2, 30)
    ones = torch.ones(500, dtype=torch.float64)
    statistics.add(features @ turn, torch.arange(500) % 2, ones, ones)
    basis = statistics.principal(6)
    most = torch.linalg.eigvalsh(statistics.gram.sum(dim=0))[-6:].sum()
    assert statistics.along(basis).gram.sum(dim=0).trace() > 0.9999 * most
    along, left = statistics.along(basis), features @ turn - features @ turn @ basis @ basis.T
    torch.testing.assert_close(along.residual.sum(), ones.sum() + left.square().sum())
