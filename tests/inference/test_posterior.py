"""The Bayesian linear model against dense Gaussian conditioning."""

import pytest
import torch

from gcgp.inference.posterior import LOG_2PI, NormalEquations, Posterior, Solved
from slow_reference import dense_bound, dense_prediction

SHAPES = pytest.mark.parametrize(("signals", "size"), [(12, 4), (4, 9), (1, 1)])
VARIANCES = pytest.mark.parametrize("variance", [0.3, 2.0, 1e4])


def problem(signals, size, seed=0):
    """Features, residuals, targets and noise that differs between signals."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(signals, size, generator=generator, dtype=torch.float64)
    residual, noise = torch.rand(2, signals, generator=generator, dtype=torch.float64)
    targets = torch.randn(signals, generator=generator, dtype=torch.float64)
    return features, residual, targets, noise + 0.1


def equations(features, residual, targets, noise):
    weighted = features / noise[:, None]
    return NormalEquations(
        gram=weighted.T @ features,
        cross=weighted.T @ targets,
        squares=(targets.square() / noise).sum(),
        residual=(residual / noise).sum(),
        log_noise=(LOG_2PI + noise.log()).sum(),
    )


def solved(variance, *data):
    weights, root = equations(*data).solve(variance)
    return Posterior(variance, weights[:, None], root[None])


def bound_of(equations, variance):
    return equations.bound(variance, *equations.solve(variance)).item()


@SHAPES
@VARIANCES
def test_mean_and_variance_are_those_of_dense_conditioning(signals, size, variance):
    data = problem(signals, size)
    features, _, targets, noise = data
    new, residual, _, _ = problem(5, size, seed=1)
    mean, spread = solved(variance, *data).predict(new, residual)
    expected, explained = dense_prediction(features, targets, noise, variance, new)
    torch.testing.assert_close(mean[:, 0], expected, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(spread[:, 0], explained + variance * residual, rtol=1e-7, atol=1e-9 * variance)


@SHAPES
@VARIANCES
def test_bound_is_the_dense_formula(signals, size, variance):
    features, residual, targets, noise = problem(signals, size)
    expected = dense_bound(features, residual, targets, noise, variance)
    assert bound_of(equations(features, residual, targets, noise), variance) == pytest.approx(
        expected, rel=1e-8
    )


def test_bound_without_residual_is_the_evidence_and_residuals_lower_it():
    features, residual, targets, noise = problem(12, 4)
    covariance = 2.0 * features @ features.T + torch.diag(noise)
    exact = torch.distributions.MultivariateNormal(torch.zeros_like(targets), covariance)
    evidence = float(exact.log_prob(targets))
    complete = equations(features, torch.zeros_like(residual), targets, noise)
    assert bound_of(complete, 2.0) == pytest.approx(evidence, rel=1e-10)
    assert bound_of(equations(features, residual, targets, noise), 2.0) < evidence


@SHAPES
@pytest.mark.parametrize("variance", [0.3, 2.0])
def test_leave_one_out_is_refitting_without_each_signal(signals, size, variance):
    data = problem(signals, size)
    features, residual, targets, noise = data
    posterior = solved(variance, *data)
    mean, spread = posterior.leave_one_out(features, residual, (targets / noise)[:, None], 1 / noise[:, None])
    for n in range(signals):
        others = torch.arange(signals) != n
        refitted = solved(variance, *(column[others] for column in data))
        expected = refitted.predict(features[n : n + 1], residual[n : n + 1])
        torch.testing.assert_close((mean[n : n + 1], spread[n : n + 1]), expected)


def test_latent_functions_do_not_mix():
    one, two = problem(12, 4), problem(12, 4, seed=1)
    new, residual, _, _ = problem(5, 4, seed=2)
    first, second = solved(2.0, *one), solved(2.0, *two)
    both = Posterior(
        2.0,
        torch.cat([first.weights, second.weights], dim=1),
        torch.cat([first.roots, second.roots]),
    )
    apart = [
        torch.cat(pair, dim=1)
        for pair in zip(*(p.predict(new, residual) for p in (first, second)), strict=True)
    ]
    torch.testing.assert_close(both.predict(new, residual), tuple(apart))


@SHAPES
def test_joint_covariance_is_that_of_dense_conditioning(signals, size):
    features, residual, targets, noise = problem(signals, size)
    new, unexplained, _, _ = problem(5, size, seed=1)
    variance, prior = 2.0, new @ new.T + torch.diag(unexplained)
    posterior = solved(variance, features, residual, targets, noise)
    cross = variance * features @ new.T
    data = variance * features @ features.T + torch.diag(noise)
    expected = variance * prior - cross.T @ torch.linalg.solve(data, cross)
    covariance = posterior.covariance(new, prior)
    torch.testing.assert_close(covariance[0], expected)
    _, marginal = posterior.predict(new, unexplained)
    torch.testing.assert_close(covariance.diagonal(dim1=1, dim2=2).T, marginal)


def test_samples_have_the_joint_moments_of_the_posterior():
    first, second = solved(2.0, *problem(12, 4)), solved(2.0, *problem(12, 4, seed=1))
    posterior = Posterior(
        2.0, torch.cat([first.weights, second.weights], dim=1), torch.cat([first.roots, second.roots])
    )
    new, residual, _, _ = problem(3, 4, seed=2)
    samples = posterior.sample(new, residual, 200_000)
    assert samples.shape == (200_000, 3, 2)
    covariance = posterior.covariance(new, new @ new.T + torch.diag(residual))
    scale = float(covariance.abs().max())
    torch.testing.assert_close(samples.mean(dim=0), posterior.mean(new), rtol=0, atol=0.01 * scale**0.5)
    for c in range(2):
        torch.testing.assert_close(samples[:, :, c].T.cov(), covariance[c], rtol=0, atol=0.02 * scale)
    assert abs(float(samples[:, 0].T.corrcoef()[0, 1])) < 0.01  # latent functions are independent


def test_samples_depend_on_the_seed_only():
    posterior, (new, residual, _, _) = solved(2.0, *problem(12, 4)), problem(5, 4, seed=1)
    one, same, other = (posterior.sample(new, residual, 3, seed) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_no_data_leaves_the_prior():
    features, residual, targets, noise = problem(0, 3)
    new, left, _, _ = problem(5, 3)
    mean, spread = solved(2.0, features, residual, targets, noise).predict(new, left)
    assert mean.eq(0).all()
    torch.testing.assert_close(spread[:, 0], 2.0 * (new.square().sum(dim=1) + left))


@pytest.mark.parametrize(("signals", "size"), [(12, 4), (3, 5), (0, 3)])
def test_derivatives_of_solutions_agree_with_differences(signals, size):
    features, _, _, _ = problem(signals, size)
    rows, _, _, _ = problem(size + 3, size, seed=1)
    vector, precision = rows[0], rows.T @ rows + torch.eye(size)

    def of_symmetric(matrix, vector, rows):
        return Solved.apply((matrix + matrix.T) / 2, vector, rows)

    given = [part.clone().requires_grad_() for part in (precision, vector, features)]
    assert torch.autograd.gradcheck(of_symmetric, given)


@SHAPES
@VARIANCES
def test_moments_are_those_of_the_posterior(signals, size, variance):
    data = problem(signals, size)
    posterior = solved(variance, *data)
    mean, explained = equations(*data).moments(variance, data[0])
    torch.testing.assert_close(mean, posterior.mean(data[0])[:, 0])
    torch.testing.assert_close(explained, posterior.explained_variance(data[0])[:, 0])


@pytest.mark.parametrize("seed", range(8))
def test_noise_that_is_negligible_beside_the_variance(seed):
    """Two signals leave two of four directions without data: I + gram is singular to rounding."""
    features, residual, targets, _ = problem(2, 4, seed)
    data = equations(features, residual, targets, torch.full((2,), 1e-30, dtype=torch.float64))
    weights, root = data.solve(1.0)
    assert torch.isfinite(root).all()
    assert root.is_contiguous()
    torch.testing.assert_close(features @ weights, targets, rtol=1e-3, atol=1e-3)
    mean, explained = data.moments(1.0, features)
    torch.testing.assert_close(mean, targets, rtol=1e-3, atol=1e-3)
    assert torch.isfinite(explained).all()


def test_factors_have_the_layout_of_a_saved_model():
    """Another layout rounds differently, and predictions of a loaded model have to be identical."""
    _, root = equations(*problem(12, 4)).solve(2.0)
    assert root.is_contiguous()
