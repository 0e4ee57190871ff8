"""Expected class probabilities."""

import numpy as np
import pytest
import torch

from gcgp.inference.likelihoods import expected_softmax, normal_draws, softmax


def latent(rows=50, classes=4):
    generator = torch.Generator().manual_seed(0)
    mean = 3 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    return mean, 4 * torch.rand(rows, classes, generator=generator, dtype=torch.float64)


def test_rows_sum_to_one():
    mean, variance = latent()
    probabilities = expected_softmax(mean, variance, normal_draws(4))
    assert (probabilities > 0).all()
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(50).double())


def test_no_variance_gives_the_softmax():
    mean, _ = latent()
    probabilities = expected_softmax(mean, torch.zeros_like(mean), normal_draws(4))
    torch.testing.assert_close(probabilities, torch.softmax(mean, dim=1))


def test_two_classes_are_a_logistic_normal_integral():
    mean, variance = latent(classes=2)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    spread = variance.sum(dim=1).sqrt()
    gap = (mean[:, 0] - mean[:, 1])[:, None] + spread[:, None] * torch.from_numpy(nodes)
    expected = torch.sigmoid(gap) @ torch.from_numpy(weights / weights.sum())
    actual = expected_softmax(mean, variance, normal_draws(2))
    torch.testing.assert_close(actual[:, 0], expected, rtol=0, atol=1e-3)


def test_many_classes_are_the_mean_over_many_draws():
    mean, variance = latent(rows=5)
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(100_000, 4, generator=generator, dtype=torch.float64)
    for n in range(5):
        values = torch.softmax(mean[n] + variance[n].sqrt() * noise, dim=1)
        actual = expected_softmax(mean[n : n + 1], variance[n : n + 1], normal_draws(4))[0]
        torch.testing.assert_close(actual, values.mean(dim=0), rtol=0, atol=5e-3)


def test_more_variance_means_less_certainty():
    mean = torch.tensor([[2.0, 0.0, 0.0]], dtype=torch.float64)
    sure, unsure = (
        expected_softmax(mean, torch.full_like(mean, v), normal_draws(3))[0, 0] for v in (0.1, 10.0)
    )
    assert 1 / 3 < unsure < sure


@pytest.mark.parametrize("rows", [1, 7, 50])
@pytest.mark.parametrize("draws", [64, 512])
def test_chunks_of_rows_do_not_change_the_result(rows, draws, monkeypatch):
    mean, variance = latent()
    whole = expected_softmax(mean, variance, normal_draws(4, draws))
    monkeypatch.setattr(softmax, "PROBABILITY_ROWS", rows)
    torch.testing.assert_close(expected_softmax(mean, variance, normal_draws(4, draws)), whole)


def test_no_rows_give_no_rows():
    mean, variance = latent(rows=0)
    assert expected_softmax(mean, variance, normal_draws(4)).shape == (0, 4)


def test_draws_are_standard_normal_and_depend_on_the_seed_only():
    draws = normal_draws(5, 1024, seed=3)
    assert draws.shape == (1024, 5)
    assert draws.isfinite().all()
    torch.testing.assert_close(draws.mean(dim=0), torch.zeros(5).double(), rtol=0, atol=0.02)
    torch.testing.assert_close(draws.T.cov(), torch.eye(5).double(), rtol=0, atol=0.1)
    assert torch.equal(draws, normal_draws(5, 1024, seed=3))
    assert not torch.equal(draws, normal_draws(5, 1024, seed=4))
