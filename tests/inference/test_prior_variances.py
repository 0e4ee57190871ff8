"""Estimated prior variances are unbiased, and so is the bound computed from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_features import PLENTY, images

from gcgp.inference import Features, Statistics, Term
from gcgp.inference.likelihoods import Gaussian
from gcgp.inference.prior_variances import Sampling
from gcgp.kernel import ConvolutionalKernel, RotationAverage, base_kernel
from gcgp.kernel.base import set_lengthscales
from gcgp.patches import Convolution
from gcgp.weighting import Polar

DRAWS, REPEATS = 12, 100


def made(kernel: str = "rbf", pooled: bool = False):
    """Signals, and features that explain nearly all of their prior variance."""
    signals = images(3, side=8)
    convolution = Convolution(Polar([0.0, 1.0], 4, 0.8), position=not pooled, dtype=torch.float64)
    with torch.no_grad():
        patches = convolution.patches(signals)
    columns = convolution.columns(signals)
    base = base_kernel(kernel, columns).double()
    set_lengthscales(base, torch.full((patches.values.shape[1],), 3.0, dtype=torch.float64))
    if pooled:
        base = RotationAverage(base, convolution.weighting.rotations)
    inducing = patches.values[:: len(patches.values) // (6 if pooled else 25)]
    term = Term(convolution, ConvolutionalKernel(base, "mean").requires_grad_(False), inducing)
    return signals, Features([term], PLENTY)


def sampled(seed: int, draws: int = DRAWS) -> Sampling:
    return Sampling(draws, seed, np.arange(3))


def assert_unbiased(estimates: torch.Tensor, exact: torch.Tensor) -> None:
    error = estimates.std(dim=0) / len(estimates) ** 0.5
    assert ((estimates.mean(dim=0) - exact).abs() < 4.5 * error + 1e-12).all()


CASES = pytest.mark.parametrize(("kernel", "pooled"), [("rbf", False), ("matern52", False), ("rbf", True)])


@CASES
def test_unexplained_variance_is_unbiased_with_an_error_relative_to_itself(kernel, pooled):
    signals, features = made(kernel, pooled)
    patches, run = features.patches(signals), slice(0, len(signals))
    exact = features.of_patches(patches, run)
    drawn = [features.of_patches(patches, run, sampling=sampled(seed)) for seed in range(REPEATS)]
    estimates = torch.stack([chunk.unexplained for chunk in drawn])
    assert_unbiased(estimates, exact.unexplained)
    assert (estimates.std(dim=0) < 3 * exact.unexplained).all()
    assert (exact.unexplained < 0.02 * exact.diagonal).all()  # or it would be easy


@CASES
def test_the_sampled_bound_is_unbiased(kernel, pooled):
    signals, features = made(kernel, pooled)
    targets, group = torch.linspace(-1, 1, len(signals)).double(), torch.zeros(len(signals)).long()
    likelihood = Gaussian(0.01)

    patches, run = features.patches(signals), slice(0, len(signals))

    def bound(**options):
        statistics = Statistics.empty(1, features.size)
        chunk = features.of_patches(patches, run, **options)
        statistics.add(chunk.features, group, targets, chunk.unexplained)
        return likelihood.bound(statistics, 5.0)

    estimates = torch.stack([bound(sampling=sampled(seed)) for seed in range(REPEATS)])
    assert_unbiased(estimates, bound())


@CASES
def test_prior_variances_of_thinned_signals_are_unbiased(kernel, pooled):
    signals, features = made(kernel, pooled)
    (term,) = features.terms
    whole = term.kernel.weighted(term.convolution.patches(signals))
    exact = features.of_patches([whole], slice(0, len(signals)))
    unexplained = []
    for seed in range(REPEATS):
        thinned = whole.thinned(DRAWS, np.random.default_rng(seed))
        unexplained.append(features.of_patches([thinned], slice(0, len(signals))).unexplained)
    assert_unbiased(torch.stack(unexplained), exact.unexplained)
    if pooled:  # too few patches differ there for the bias to show
        return
    naive = [
        features.of_patches(
            [replace(whole.thinned(DRAWS, np.random.default_rng(seed)), population=None)],
            slice(0, len(signals)),
        ).unexplained
        for seed in range(REPEATS)
    ]
    assert torch.stack(naive).mean() > 1.05 * exact.unexplained.mean()  # which the correction removes


def test_thinned_patches_keep_their_population():
    signals, features = made()
    (term,) = features.terms
    whole = term.convolution.patches(signals)
    thinned = whole.thinned(5, np.random.default_rng(0))
    assert thinned.population.tolist() == whole.offsets.diff().tolist()
    assert (
        thinned[1:3].population.tolist() == thinned.select_signals(torch.tensor([1, 2])).population.tolist()
    )
    joined = type(whole).concatenate([thinned, whole])
    assert joined.population.tolist() == 2 * whole.offsets.diff().tolist()


def test_negative_estimates_have_gradients():
    signals, features = made()
    (term,) = features.terms
    term.kernel.requires_grad_(True)
    patches = features.patches(signals, grad=True)
    for seed in range(20):
        sampling = sampled(seed, draws=4)
        chunk = features.of_patches(patches, slice(0, 3), sampling=sampling, roots=features.roots())
        if bool((chunk.unexplained < 0).any()):
            break
    negative = torch.nonzero(chunk.unexplained < 0)[0, 0]
    (gradient,) = torch.autograd.grad(chunk.unexplained[negative], [term.kernel.base.raw_lengthscale])
    assert gradient.abs().sum() > 0
