"""Kernels averaged over rotations, compared with loops over the rotations of both patches."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, RQKernel, ScaleKernel

from gcgp.io.kernels import describe_kernel, rebuild_kernel
from gcgp.io.tensors import module_state
from gcgp.kernel import RotationAverage, sums
from gcgp.kernel.base import evaluate, prior_variance
from gcgp.kernel.engine import blocks, rotation_sums
from gcgp.kernel.engine.circular_correlation import CircularCorrelation
from gcgp.patches import Patches
from gcgp.weighting.polar import angular_rotations
from slow_reference import ragged_patches

ROTATIONS = angular_rotations(1, 3)
BASES = {"rbf": RBFKernel, "matern32": lambda: MaternKernel(nu=1.5), "rational quadratic": RQKernel}


@pytest.fixture(params=BASES)
def averaged(request):
    base = BASES[request.param]()
    base.lengthscale = 0.9
    return RotationAverage(base, ROTATIONS).double()


def both_rotated(kernel, x, y):
    """The mean over the rotations of both patches, one pair of patches at a time."""
    pairs = [(x[a], y[b]) for a in ROTATIONS for b in ROTATIONS]
    return torch.stack([evaluate(kernel.base_kernel, p[None], q[None])[0, 0] for p, q in pairs]).mean()


def test_one_rotation_moves_each_bin_by_one_direction():
    rotations = angular_rotations(2, 4)
    assert rotations[0].tolist() == list(range(8))
    assert rotations[1].tolist() == [1, 2, 3, 0, 5, 6, 7, 4]


def test_the_kernel_is_the_mean_over_the_rotations_of_both_patches(averaged):
    x, y = ragged_patches([3]).values, ragged_patches([4], seed=1).values
    slow = torch.stack([torch.stack([both_rotated(averaged, a, b) for b in y]) for a in x])
    torch.testing.assert_close(evaluate(averaged, x, y), slow)
    torch.testing.assert_close(averaged(x, y).to_dense(), slow)
    torch.testing.assert_close(prior_variance(averaged, x), evaluate(averaged, x, x).diagonal())


def test_a_rotated_patch_is_the_same_patch(averaged):
    x, y = ragged_patches([3]).values, ragged_patches([4], seed=1).values
    torch.testing.assert_close(evaluate(averaged, x[:, ROTATIONS[2]], y), evaluate(averaged, x, y))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_sums_are_those_of_the_whole_matrix(averaged, mode):
    left, right = ragged_patches([3, 0, 2]), ragged_patches([2, 4], seed=1)
    m = torch.zeros(3, 5, dtype=torch.float64)
    m[left.signal_of, torch.arange(5)] = left.multiplicity
    n = torch.zeros(2, 6, dtype=torch.float64)
    n[right.signal_of, torch.arange(6)] = right.multiplicity
    with mode():
        kfu = sums.kfu(averaged, left, right.values)
        kff = sums.kff(averaged, left, right)
        diagonal = sums.kff_diagonal(averaged, left)
    torch.testing.assert_close(kfu, m @ evaluate(averaged, left.values, right.values))
    torch.testing.assert_close(kff, m @ evaluate(averaged, left.values, right.values) @ n.T)
    own = evaluate(averaged, left.values, left.values)
    torch.testing.assert_close(diagonal, torch.einsum("np,pq,nq->n", m, own, m))


def test_the_diagonal_of_a_large_signal_is_summed_in_blocks(averaged, monkeypatch):
    patches = ragged_patches([40])
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 100)
    with torch.no_grad():
        blocked = sums.kff_diagonal(averaged, patches)
    whole = patches.multiplicity @ evaluate(averaged, patches.values, patches.values) @ patches.multiplicity
    torch.testing.assert_close(blocked[0], whole.detach())


def test_a_description_builds_a_twin(averaged):
    if isinstance(averaged.base_kernel, RQKernel):
        averaged.base_kernel.alpha = 1.3
    twin = rebuild_kernel("kernel", describe_kernel(averaged), module_state(averaged))
    x = ragged_patches([4]).values
    torch.testing.assert_close(evaluate(twin, x, x), evaluate(averaged, x, x), rtol=0, atol=0)


@pytest.mark.parametrize("count", [2, 3, 6, 7])
@pytest.mark.parametrize("fixed", [0, 2])
def test_exponents_for_all_rotations_are_those_of_the_rotated_patches(count, fixed):
    rotations = angular_rotations(2, count)
    rotations = torch.cat([rotations, torch.arange(2 * count, 2 * count + fixed).expand(count, -1)], dim=1)
    random = torch.Generator().manual_seed(count)
    x, y = (torch.randn(n, 2 * count + fixed, generator=random, dtype=torch.float64) for n in (4, 5))
    scales = [torch.full((count,), 0.7), torch.full((count,), 1.9), torch.full((fixed,), 1.3)]
    lengthscale = torch.cat(scales).double()
    correlation = CircularCorrelation.of(x, y, y.mean(dim=0), lengthscale, rotations)
    actual = correlation.exponents(slice(1, 4), slice(0, 3))
    for s in range(count):
        offsets = (x[1:4, None] - y[None, :3][..., rotations[s]]) / lengthscale
        torch.testing.assert_close(actual[s], -0.5 * offsets.square().sum(-1))


def test_rotations_that_are_not_rings_are_not_correlations():
    x, uneven = torch.randn(3, 4), torch.tensor([1.0, 2.0, 1.0, 1.0])
    swap = torch.tensor([[0, 1, 2, 3], [1, 0, 2, 3], [0, 1, 3, 2]])
    assert CircularCorrelation.of(x, x, x[0], torch.ones(()), swap) is None
    assert CircularCorrelation.of(x, x, x[0], uneven, angular_rotations(1, 4)) is None
    assert CircularCorrelation.of(x, x, x[0], torch.ones(()), angular_rotations(4, 1)) is None


def test_a_scaled_average_is_a_multiple_of_the_average(averaged):
    scaled = ScaleKernel(averaged).double()
    scaled.outputscale = 2.5
    x, patches = ragged_patches([3]).values, ragged_patches([4, 2], seed=1)
    torch.testing.assert_close(evaluate(scaled, x, x), 2.5 * evaluate(averaged, x, x))
    torch.testing.assert_close(sums.kfu(scaled, patches, x), 2.5 * sums.kfu(averaged, patches, x))
    diagonal = sums.kff_diagonal(averaged, patches)
    torch.testing.assert_close(sums.kff_diagonal(scaled, patches), 2.5 * diagonal)


@pytest.mark.parametrize("rows", [3, 5, 64])
def test_tiles_of_values_add_up(averaged, rows, monkeypatch):
    monkeypatch.setattr(rotation_sums, "ROWS_PER_TILE", rows)
    monkeypatch.setattr(rotation_sums, "block_elements", lambda values: 7 * rows * len(ROTATIONS))
    patches = ragged_patches([17, 1, 5])
    inducing = patches.values[:9]
    signals = torch.nn.functional.one_hot(patches.signal_of).double() * patches.multiplicity[:, None]
    with torch.no_grad():
        whole = evaluate(averaged, patches.values, patches.values)
        torch.testing.assert_close(
            sums.kff_diagonal(averaged, patches), (signals * (whole @ signals)).sum(dim=0)
        )
        torch.testing.assert_close(sums.kfu(averaged, patches, inducing), signals.T @ whole[:, :9])


def test_float32_is_close_to_float64(averaged):
    patches = ragged_patches([30, 12])
    with torch.no_grad():
        exact = sums.kfu(averaged, patches, patches.values[:9]), sums.kff_diagonal(averaged, patches)
        single = Patches(
            patches.values.float(), patches.multiplicity.float(), patches.offsets, patches.vertices
        )
        averaged.float()
        quick = sums.kfu(averaged, single, single.values[:9]), sums.kff_diagonal(averaged, single)
    for a, b in zip(quick, exact, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)
