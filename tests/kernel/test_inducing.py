"""Selection of inducing patches."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from gcgp.kernel import choose_inducing
from gcgp.kernel.base import evaluate
from gcgp.kernel.inducing import INDUCING_METHODS
from slow_reference import KERNELS, example_kernel

EVERY_METHOD = pytest.mark.parametrize("method", INDUCING_METHODS)


def choose(candidates, count, method, random_state=0, **options):
    if method == "greedy":
        options = {"kernel": RBFKernel().double()} | options
    return choose_inducing(candidates, count, method=method, random_state=random_state, **options)


def candidates_with_repeats(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(20, 3, generator=generator, dtype=torch.float64).to(dtype)
    return torch.cat([rows, rows[:7], rows[3:5]])


def as_set(rows):
    return {tuple(row) for row in rows.tolist()}


@EVERY_METHOD
@pytest.mark.parametrize("count", [1, 8, 20, 25])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_are_distinct_candidates_and_never_too_many(method, count, dtype):
    candidates = candidates_with_repeats(dtype)
    chosen = choose(candidates, count, method)
    assert chosen.dtype == dtype
    assert len(chosen) == len(as_set(chosen)) == min(count, 20)
    assert as_set(chosen) <= as_set(candidates)


@EVERY_METHOD
def test_same_seed_gives_the_same_rows(method):
    candidates = candidates_with_repeats()
    first = choose(candidates, 6, method, random_state=5)
    assert torch.equal(first, choose(candidates, 6, method, random_state=5))
    generator = np.random.default_rng(5)
    assert torch.equal(first, choose(candidates, 6, method, random_state=generator))


@EVERY_METHOD
def test_the_order_of_candidates_does_not_matter(method):
    candidates = candidates_with_repeats()
    shuffled = candidates[torch.randperm(len(candidates), generator=torch.Generator().manual_seed(1))]
    assert torch.equal(choose(candidates, 6, method), choose(shuffled, 6, method))


@pytest.mark.parametrize("method", ["random", "k-means++"])
def test_another_seed_gives_other_rows(method):
    candidates = candidates_with_repeats()
    sets = {frozenset(as_set(choose(candidates, 6, method, random_state=seed))) for seed in range(5)}
    assert len(sets) > 1


@EVERY_METHOD
def test_equal_candidates_give_one_row(method):
    candidates = torch.full((9, 3), 0.1, dtype=torch.float64)
    assert torch.equal(choose(candidates, 4, method), candidates[:1])


@EVERY_METHOD
def test_candidates_equal_up_to_rounding_are_duplicates(method):
    """Otherwise the selection would depend on the machine and its number of threads."""
    candidates = 1000 + torch.arange(5, dtype=torch.float64)[:, None] * 1e-12
    assert len(torch.unique(candidates)) > 2
    assert len(choose(candidates, 5, method)) == 1
    apart = 1000 + torch.arange(5, dtype=torch.float64)[:, None] * 1e-2
    assert len(choose(apart, 5, method)) == 5


@EVERY_METHOD
def test_gradients_of_candidates_are_ignored(method):
    candidates = candidates_with_repeats().requires_grad_()
    assert not choose(candidates, 4, method).requires_grad


def test_random_draws_are_uniform():
    candidates = torch.arange(6, dtype=torch.float64)[:, None]
    drawn = torch.cat([choose(candidates, 2, "random", random_state=seed) for seed in range(600)])
    counts = torch.bincount(drawn[:, 0].long(), minlength=6)
    assert counts.sum() == 1200
    assert (counts - 200).abs().max() < 60


def clusters():
    """Eight tight clusters, the first with most of the points."""
    generator = torch.Generator().manual_seed(0)
    centers = 100 * torch.tensor([[i & 1, i >> 1 & 1, i >> 2] for i in range(8)]).double()
    sizes = torch.tensor([200, 3, 3, 3, 3, 3, 3, 3])
    label = torch.repeat_interleave(torch.arange(8), sizes)
    return centers[label] + torch.randn(len(label), 3, generator=generator).double(), centers


@pytest.mark.parametrize("method", ["k-means++", "greedy"])
@pytest.mark.parametrize("seed", range(5))
def test_clusters_far_apart_are_all_covered(method, seed):
    points, centers = clusters()
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(30.0, dtype=torch.float64)
    options = {"kernel": kernel} if method == "greedy" else {}
    chosen = choose(points, 8, method, random_state=seed, **options)
    assert set(torch.cdist(chosen, centers).argmin(dim=1).tolist()) == set(range(8))


def test_k_means_measures_distance_in_scaled_columns():
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(60, 2, generator=generator).double() * torch.tensor([1000.0, 1.0])
    points[:30, 1] -= 50
    points[30:, 1] += 50
    scale = torch.tensor([1e6, 1.0], dtype=torch.float64)
    for seed in range(5):
        chosen = choose(points, 2, "k-means++", random_state=seed, scale=scale)
        assert chosen[0, 1].sign() != chosen[1, 1].sign()


def naive_greedy(points, count, kernel, chosen=()):
    """Conditional variances computed from scratch in each step."""
    chosen = [*chosen]
    while len(chosen) < count:
        prior = evaluate(kernel, points, points)
        left = prior.diagonal()
        if chosen:
            cross = prior[:, chosen]
            left = left - (cross * torch.linalg.solve(prior[chosen][:, chosen], cross.T).T).sum(1)
        left = left.clone()
        left[chosen] = -torch.inf
        chosen.append(int(left.argmax()))
    return points[chosen]


@pytest.mark.parametrize("name", [n for n in KERNELS if "linear" not in n and n != "sum"])
def test_greedy_takes_the_largest_conditional_variance(name):
    points = candidates_with_repeats()[:20]
    # All points have the same prior variance, so which one is first is arbitrary: start from it.
    kernel = example_kernel(name)
    with torch.no_grad():
        chosen = choose(points, 8, "greedy", kernel=kernel)
        others = points[(points != chosen[0]).any(dim=1)]
        expected = naive_greedy(torch.cat([chosen[:1], others]), 8, kernel, [0])
    assert torch.equal(chosen, expected)


def test_greedy_with_a_kernel_of_low_rank_still_gives_distinct_rows():
    """Three patches explain a linear kernel on three columns; the rest are taken in any order."""
    points = candidates_with_repeats()
    chosen = choose(points, 10, "greedy", kernel=example_kernel("linear"))
    with torch.no_grad():
        expected = naive_greedy(torch.unique(points, dim=0), 3, example_kernel("linear"))
    assert len(as_set(chosen)) == 10
    assert torch.equal(chosen[:3], expected)


def test_greedy_does_not_depend_on_the_scale_of_the_kernel():
    kernel = example_kernel("scaled rbf")
    points = candidates_with_repeats()
    usual = choose(points, 6, "greedy", kernel=kernel)
    kernel.outputscale = torch.tensor(1e-13, dtype=torch.float64)
    assert torch.equal(choose(points, 6, "greedy", kernel=kernel), usual)


def test_greedy_needs_a_kernel():
    with pytest.raises(ValueError, match=r"greedy.*kernel"):
        choose_inducing(torch.eye(3), 2, method="greedy")


def test_unknown_method_is_named():
    with pytest.raises(ValueError, match=r"inducing.*'best'.*k-means\+\+"):
        choose_inducing(torch.eye(3), 2, method="best")


@pytest.mark.parametrize("count", [0, -1])
def test_count_below_one_is_named(count):
    with pytest.raises(ValueError, match=f"at least 1, got {count}"):
        choose_inducing(torch.eye(3), count)
