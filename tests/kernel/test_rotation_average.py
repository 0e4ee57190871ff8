"""Kernels pooled over rotations, against loops over all turns of both patches."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, RQKernel

from gcgp.io.kernels import build, describe
from gcgp.kernel import RotationAverage, blocks, sums, turned
from gcgp.kernel.base import evaluate, prior_variance
from gcgp.kernel.engine.circular_correlation import CircularCorrelation
from gcgp.patches import Patches
from gcgp.weighting.polar import angular_rotations
from slow_reference import ragged_patches

TURNS = angular_rotations(1, 3)
BASES = {"rbf": RBFKernel, "matern32": lambda: MaternKernel(nu=1.5), "rational quadratic": RQKernel}


@pytest.fixture(params=BASES)
def pooled(request):
    base = BASES[request.param]()
    base.lengthscale = 0.9
    return RotationAverage(base, TURNS).double()


def both_turned(kernel, x, y):
    """The mean over the turns of both patches, one pair of patches at a time."""
    turns = [(x[a], y[b]) for a in TURNS for b in TURNS]
    return torch.stack([evaluate(kernel.base_kernel, p[None], q[None])[0, 0] for p, q in turns]).mean()


def test_one_turn_of_a_patch_moves_each_bin_by_one_direction():
    rotations = angular_rotations(2, 4)
    assert rotations[0].tolist() == list(range(8))
    assert rotations[1].tolist() == [1, 2, 3, 0, 5, 6, 7, 4]


def test_the_pooled_kernel_is_the_mean_over_the_turns_of_both_patches(pooled):
    x, y = ragged_patches([3]).values, ragged_patches([4], seed=1).values
    slow = torch.stack([torch.stack([both_turned(pooled, a, b) for b in y]) for a in x])
    torch.testing.assert_close(evaluate(pooled, x, y), slow)
    torch.testing.assert_close(pooled(x, y).to_dense(), slow)
    torch.testing.assert_close(prior_variance(pooled, x), evaluate(pooled, x, x).diagonal())


def test_a_turned_patch_is_the_same_patch(pooled):
    x, y = ragged_patches([3]).values, ragged_patches([4], seed=1).values
    torch.testing.assert_close(evaluate(pooled, x[:, TURNS[2]], y), evaluate(pooled, x, y))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_sums_are_those_of_the_whole_matrix(pooled, mode):
    left, right = ragged_patches([3, 0, 2]), ragged_patches([2, 4], seed=1)
    m = torch.zeros(3, 5, dtype=torch.float64)
    m[left.signal_of, torch.arange(5)] = left.multiplicity
    n = torch.zeros(2, 6, dtype=torch.float64)
    n[right.signal_of, torch.arange(6)] = right.multiplicity
    with mode():
        kfu = sums.kfu(pooled, left, right.values)
        kff = sums.kff(pooled, left, right)
        diagonal = sums.kff_diagonal(pooled, left)
    torch.testing.assert_close(kfu, m @ evaluate(pooled, left.values, right.values))
    torch.testing.assert_close(kff, m @ evaluate(pooled, left.values, right.values) @ n.T)
    own = evaluate(pooled, left.values, left.values)
    torch.testing.assert_close(diagonal, torch.einsum("np,pq,nq->n", m, own, m))


def test_the_diagonal_of_a_large_signal_is_summed_in_blocks(pooled, monkeypatch):
    patches = ragged_patches([40])
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 100)
    with torch.no_grad():
        blocked = sums.kff_diagonal(pooled, patches)
    whole = patches.multiplicity @ evaluate(pooled, patches.values, patches.values) @ patches.multiplicity
    torch.testing.assert_close(blocked[0], whole.detach())


def test_a_sampled_diagonal_is_right_on_average(pooled):
    patches = ragged_patches([30])
    with torch.no_grad():
        exact = sums.kff_diagonal(pooled, patches)
        drawn = [sums.kff_diagonal(pooled, patches, draws=8, seed=seed) for seed in range(100)]
    estimates = torch.cat(drawn)
    error = estimates.std() / len(estimates) ** 0.5
    assert abs(estimates.mean() - exact[0]) < 4 * error


def test_a_description_builds_a_twin(pooled):
    if isinstance(pooled.base_kernel, RQKernel):
        pooled.base_kernel.alpha = 1.3
    twin = build(describe(pooled)).double()
    twin.load_state_dict(pooled.state_dict())
    x = ragged_patches([4]).values
    torch.testing.assert_close(evaluate(twin, x, x), evaluate(pooled, x, x), rtol=0, atol=0)


@pytest.mark.parametrize("turns", [2, 3, 6, 7])
@pytest.mark.parametrize("fixed", [0, 2])
def test_exponents_for_all_turns_at_once_are_those_of_the_turned_patches(turns, fixed):
    rotations = angular_rotations(2, turns)
    rotations = torch.cat([rotations, torch.arange(2 * turns, 2 * turns + fixed).expand(turns, -1)], dim=1)
    random = torch.Generator().manual_seed(turns)
    x, y = (torch.randn(n, 2 * turns + fixed, generator=random, dtype=torch.float64) for n in (4, 5))
    lengthscale = torch.cat(
        [torch.full((turns,), s) for s in (0.7, 1.9)] + [torch.full((fixed,), 1.3)]
    ).double()
    actual = CircularCorrelation.of(x, y, y.mean(dim=0), lengthscale, rotations).exponents(
        slice(1, 4), slice(0, 3)
    )
    for s in range(turns):
        offsets = (x[1:4, None] - y[None, :3][..., rotations[s]]) / lengthscale
        torch.testing.assert_close(actual[s], -0.5 * offsets.square().sum(-1))


def test_rotations_that_are_no_rings_have_no_quick_way():
    x = torch.randn(3, 4)
    swap = torch.tensor([[0, 1, 2, 3], [1, 0, 2, 3], [0, 1, 3, 2]])
    assert CircularCorrelation.of(x, x, x[0], torch.ones(()), swap) is None
    assert (
        CircularCorrelation.of(x, x, x[0], torch.tensor([1.0, 2.0, 1.0, 1.0]), angular_rotations(1, 4))
        is None
    )
    assert CircularCorrelation.of(x, x, x[0], torch.ones(()), angular_rotations(4, 1)) is None


@pytest.mark.parametrize("rows", [3, 5, 64])
def test_tiles_of_values_add_up(pooled, rows, monkeypatch):
    monkeypatch.setattr(turned, "ROWS", rows)
    monkeypatch.setattr(turned, "block_elements", lambda values: 7 * rows * pooled.turns)
    patches = ragged_patches([17, 1, 5])
    inducing = patches.values[:9]
    signals = torch.nn.functional.one_hot(patches.signal_of).double() * patches.multiplicity[:, None]
    with torch.no_grad():
        whole = evaluate(pooled, patches.values, patches.values)
        torch.testing.assert_close(
            sums.kff_diagonal(pooled, patches), (signals * (whole @ signals)).sum(dim=0)
        )
        torch.testing.assert_close(sums.kfu(pooled, patches, inducing), signals.T @ whole[:, :9])


def test_float32_is_close_to_float64(pooled):
    patches = ragged_patches([30, 12])
    with torch.no_grad():
        exact = sums.kfu(pooled, patches, patches.values[:9]), sums.kff_diagonal(pooled, patches)
        single = Patches(
            patches.values.float(), patches.multiplicity.float(), patches.offsets, patches.vertices
        )
        pooled.float()
        quick = sums.kfu(pooled, single, single.values[:9]), sums.kff_diagonal(pooled, single)
    for a, b in zip(quick, exact, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)
