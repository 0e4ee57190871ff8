"""Features, their chunks and their vertices; the whole chain as exact GP regression."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from gcgp.domain import Signals
from gcgp.inference import Features, Statistics, Term
from gcgp.inference import features as features_module
from gcgp.inference.likelihoods import Gaussian
from gcgp.kernel import ConvolutionalKernel
from gcgp.patches import Convolution
from gcgp.weighting import Box, Radial
from slow_reference import example_kernel

PLENTY = 10**9
"""Memory for all signals at once."""


def images(count=5, side=6, seed=0):
    """Images of few gray levels, so that some patches repeat."""
    rng = np.random.default_rng(seed)
    stack = rng.integers(0, 2, (count, side, side)) * rng.integers(1, 3, (count, 1, 1)) / 2
    stack[:, : side // 2] = 0
    return Signals.from_images(stack.astype(np.float64))


def graphs():
    """Paths of different lengths, on the line."""
    rng = np.random.default_rng(1)
    sizes = [4, 1, 7, 2, 5]
    return Signals.from_graphs(
        [rng.random(n) for n in sizes],
        [[[i, i + 1] for i in range(n - 1)] for n in sizes],
        coordinates=[np.c_[np.arange(n), np.zeros(n)].astype(float) for n in sizes],
    )


def rbf(lengthscale):
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    return kernel


def term(signals, weighting, *, count=6, lengthscale=1.0, aggregate="sum", jitter=1e-6, **options):
    """A term whose inducing patches are some of the signals' patches."""
    convolution = Convolution(weighting.double().requires_grad_(False), dtype=torch.float64, **options)
    with torch.no_grad():
        inducing = torch.unique(convolution.patches(signals).values, dim=0)
    step = max(1, len(inducing) // count)
    kernel = ConvolutionalKernel(rbf(lengthscale), aggregate)
    return Term(convolution, kernel, inducing[::step][:count].contiguous(), jitter)


def two_terms(signals):
    return [
        term(signals, Radial([0.0, 1.0]), aggregate="mean"),
        term(signals, Radial([1.0, 2.0], 1.0), count=4, lengthscale=0.3, position=True),
    ]


def whole(features, signals, **options):
    (chunk,) = features.chunks(signals, **options)
    return chunk


@pytest.mark.parametrize("jitter", [1e-6, 1e-2])
@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_products_of_features_are_the_nystrom_kernel(jitter, aggregate):
    signals = images()
    one = term(signals, Box(3), aggregate=aggregate, jitter=jitter)
    chunk = whole(Features([one], PLENTY), signals)
    with torch.no_grad():
        patches = one.kernel.weighted(one.convolution.patches(signals))
        kuu, kfu = one.kernel.kuu(one.inducing), one.kernel.kfu(patches, one.inducing)
        diagonal = one.kernel.kff(patches, patches).diagonal()
    kuu = kuu + jitter * kuu.diagonal().mean() * torch.eye(len(kuu))
    expected = kfu @ torch.linalg.solve(kuu, kfu.T)
    torch.testing.assert_close(chunk.features @ chunk.features.T, expected, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(chunk.diagonal, diagonal)
    torch.testing.assert_close(
        chunk.residual, diagonal - expected.diagonal(), rtol=1e-6, atol=1e-6 * float(diagonal.max())
    )


def test_terms_are_side_by_side_and_their_kernels_add_up():
    signals = images()
    terms = two_terms(signals)
    both = whole(Features(terms, PLENTY), signals)
    alone = [whole(Features([one], PLENTY), signals) for one in terms]
    assert Features(terms, PLENTY).size == both.features.shape[1] == 10
    torch.testing.assert_close(both.features, torch.cat([a.features for a in alone], dim=1))
    torch.testing.assert_close(both.diagonal, alone[0].diagonal + alone[1].diagonal)
    torch.testing.assert_close(both.residual, alone[0].residual + alone[1].residual)


@pytest.mark.parametrize("make", [images, graphs])
@pytest.mark.parametrize("signals_at_once", [0, 2])
@pytest.mark.parametrize("draws", [None, 3])
@pytest.mark.parametrize("chunk_bytes", [0, features_module.CHUNK_BYTES])
def test_memory_limit_does_not_change_the_result(make, signals_at_once, draws, chunk_bytes, monkeypatch):
    monkeypatch.setattr(features_module, "CHUNK_BYTES", chunk_bytes)
    signals = make()
    terms = two_terms(signals)
    cost = sum(one.convolution.bytes_per_signal(signals).max() for one in terms)
    at_once = whole(Features(terms, PLENTY), signals, draws=draws, seed=7)
    chunks = list(Features(terms, int(signals_at_once * cost)).chunks(signals, draws=draws, seed=7))
    assert len(chunks) > 1 or chunk_bytes > 0
    assert [n for c in chunks for n in range(5)[c.run]] == list(range(5))
    for field in ("features", "diagonal", "residual"):
        joined = torch.cat([getattr(chunk, field) for chunk in chunks])
        torch.testing.assert_close(joined, getattr(at_once, field), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("signals_at_once", [0, 2, 5])
def test_selected_signals_have_an_exact_diagonal_beside_estimates(signals_at_once):
    signals = images()
    terms = two_terms(signals)
    cost = sum(one.convolution.bytes_per_signal(signals).max() for one in terms)
    exact, estimated = (whole(Features(terms, PLENTY), signals, draws=draws, seed=7) for draws in (None, 3))
    some = np.array([1, 4])
    chunks = Features(terms, int(signals_at_once * cost)).chunks(signals, draws=3, seed=7, exact=some)
    found = torch.cat([chunk.diagonal for chunk in chunks])
    expected = estimated.diagonal.clone()
    assert (expected != exact.diagonal).all()
    expected[some] = exact.diagonal[some]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_progress_counts_all_signals():
    signals = images()
    done: list[int] = []
    list(Features([term(signals, Box(3))], 1).chunks(signals, progress=done.append))
    assert done == [1] * 5


def test_diagonal_is_left_out_on_request():
    signals = images()
    chunk = whole(Features([term(signals, Box(3))], PLENTY), signals, diagonal=False)
    assert chunk.diagonal is None


@pytest.mark.parametrize("make", [images, graphs])
def test_features_of_the_vertices_add_up_to_those_of_the_signal(make):
    signals = make()
    features = Features(two_terms(signals), PLENTY)
    rows, _ = features.at_vertices(signals)
    assert len(rows) == len(signals.values)
    added = torch.stack([part.sum(dim=0) for part in rows.split(signals.vertex_counts.tolist())])
    torch.testing.assert_close(added, whole(features, signals).features, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("at_once", [1, 5])
def test_vertices_in_blocks_are_the_same(at_once, monkeypatch):
    signals = graphs()
    features = Features(two_terms(signals), PLENTY)
    expected = features.at_vertices(signals)
    monkeypatch.setattr("gcgp.inference.features.VERTICES_PER_BLOCK", at_once)
    torch.testing.assert_close(features.at_vertices(signals), expected)


def test_residual_of_a_vertex_is_the_unexplained_variance_of_its_share():
    signals = images()
    terms = two_terms(signals)
    rows, residual = Features(terms, PLENTY).at_vertices(signals)
    # The first term is a mean over 36 patches, the second a sum, and k_g(z, z) is 1.
    expected = (1 / 36) ** 2 + 1 - rows.square().sum(dim=1)
    torch.testing.assert_close(residual, expected.clamp_min(0.0), rtol=1e-9, atol=1e-12)
    assert residual.max() > 0.01


def test_features_of_a_vertex_are_those_of_its_patch():
    signals = graphs()
    one = term(signals, Radial([0.0, 1.0]), aggregate="mean")
    rows, _ = Features([one], PLENTY).at_vertices(signals)
    with torch.no_grad():
        values = one.convolution.patches(signals).values
        kuu = one.kernel.kuu(one.inducing)
        kuu = kuu + 1e-6 * torch.eye(len(kuu))
        kvu = torch.exp(-0.5 * torch.cdist(values, one.inducing).square())
    share = torch.from_numpy(np.repeat(1 / signals.vertex_counts, signals.vertex_counts))[:, None]
    expected = share * (kvu @ torch.linalg.solve(kuu, kvu.T)) * share.T
    torch.testing.assert_close(rows @ rows.T, expected, rtol=1e-6, atol=1e-8)


def test_vertices_without_a_patch_are_zero():
    signals = images()
    rows, residual = Features([term(signals, Box(3))], PLENTY).at_vertices(signals)
    border = torch.ones(6, 6, dtype=torch.bool)
    border[1:-1, 1:-1] = False
    outside = border.flatten().repeat(5)
    assert rows[outside].eq(0).all()
    assert residual[outside].eq(0).all()
    assert rows[~outside].ne(0).any(dim=1).all()


def test_invalid_inducing_patches_are_named_in_the_error():
    signals = images()
    one = term(signals, Box(3))
    broken = one.inducing.clone()
    broken[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"Kuu.*inducing patches too alike"):
        _ = Term(one.convolution, one.kernel, broken).root


def test_repeated_inducing_patches_add_nothing():
    signals = images()
    one = term(signals, Box(3), jitter=1e-10)
    twice = Term(one.convolution, one.kernel, one.inducing.repeat(2, 1), 1e-10)
    once, again = (whole(Features([t], PLENTY), signals).features for t in (one, twice))
    torch.testing.assert_close(again @ again.T, once @ once.T, rtol=1e-5, atol=1e-5)


def test_vertex_weights_of_the_wrong_length_name_the_signal_in_any_chunk():
    small = np.zeros((3, 5, 5))
    signals = Signals.from_images([*small, np.zeros((6, 5))])
    convolution = Convolution(Box(3), dtype=torch.float64)
    kernel = ConvolutionalKernel(rbf(1.0), vertex_weights=torch.ones(9, dtype=torch.float64))
    one = Term(convolution, kernel, torch.zeros(1, 9, dtype=torch.float64))
    for memory in (PLENTY, 1):
        with pytest.raises(ValueError, match="signal 3: 12 patches for 9 vertex_weights"):
            list(Features([one], memory).chunks(signals))


def test_weighting_with_gradients_gives_features_without_a_warning():
    signals = images()
    weighting = Radial([0.0, 1.0]).double()
    one = term(signals, weighting)
    expected = whole(Features([one], PLENTY), signals).features
    weighting.requires_grad_(True)
    torch.set_warn_always(True)
    try:
        chunk = whole(Features([one], PLENTY), signals)
    finally:
        torch.set_warn_always(False)
    assert torch.equal(chunk.features, expected)


def test_single_precision_is_close_to_double():
    signals = images()
    double = term(signals, Box(3), aggregate="mean", jitter=1e-4)
    kernel = ConvolutionalKernel(RBFKernel(), "mean")
    kernel.base.lengthscale = 1.0
    single = Term(Convolution(Box(3)), kernel, double.inducing.float(), 1e-4)
    exact, rough = (whole(Features([one], PLENTY), signals) for one in (double, single))
    assert rough.features.dtype == rough.residual.dtype == torch.float64
    torch.testing.assert_close(rough.features, exact.features, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(rough.diagonal, exact.diagonal, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["rbf ard", "matern32", "scaled matern52", "rational quadratic", "product"])
@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_all_distinct_patches_as_inducing_patches_make_exact_gp_regression(name, aggregate):
    """The whole chain: signals, patches, features, statistics, posterior."""
    rng = np.random.default_rng(0)
    signals = Signals.from_images(rng.integers(0, 2, (8, 3, 3)).astype(np.float64) * 3)
    targets = torch.from_numpy(rng.normal(size=8))
    train, test = signals[:6], signals[6:]
    weighting = Radial([0.0, 1.0, 2.0], 0.6).double().requires_grad_(False)
    convolution = Convolution(weighting, dtype=torch.float64)
    kernel = ConvolutionalKernel(example_kernel(name), aggregate).requires_grad_(False)
    noise, variance = 0.2, 1.7
    with torch.no_grad():
        patches = kernel.weighted(convolution.patches(signals))
        inducing = torch.unique(patches.values, dim=0)
        kff = variance * kernel.kff(patches, patches)
    assert len(inducing) < len(patches.values)

    features = Features([Term(convolution, kernel, inducing, 1e-12)], PLENTY)
    seen, new = whole(features, train), whole(features, test)
    statistics = Statistics.empty(1, features.size)
    statistics.add(seen.features, torch.zeros(6, dtype=torch.int64), targets[:6], seen.residual)
    likelihood = Gaussian(noise)
    posterior = likelihood.posterior(statistics, variance)
    mean, spread = posterior.predict(new.features, new.residual)
    joint = posterior.covariance(new.features, kff[6:, 6:] / variance)[0]

    covariance, cross = kff[:6, :6] + noise * torch.eye(6), kff[6:, :6]
    evidence = torch.distributions.MultivariateNormal(torch.zeros(6).double(), covariance)
    expected = cross @ torch.linalg.solve(covariance, targets[:6])
    exact = kff[6:, 6:] - cross @ torch.linalg.solve(covariance, cross.T)
    torch.testing.assert_close(mean[:, 0], expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(spread[:, 0], exact.diagonal(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(joint, exact, rtol=1e-5, atol=1e-6)
    bound = likelihood.bound(statistics, variance).item()
    assert bound == pytest.approx(float(evidence.log_prob(targets[:6])), rel=1e-5)
