"""Base kernels: names, forms as functions of distance, and the accuracy of distances."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, ProductKernel, RBFKernel, ScaleKernel

from gcgp.kernel import base_kernel
from gcgp.kernel.base import (
    distance_form,
    evaluate,
    prior_variance,
    set_lengthscales,
    squared_distances,
)
from slow_reference import DISTANCE_KERNELS, GENERIC_KERNELS, KERNELS, example_kernel, pair_value


def points(count, seed=0, dim=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, dim, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", KERNELS)
def test_evaluate_is_gpytorch_pair_by_pair(name):
    kernel, x, y = example_kernel(name), points(4), points(5, seed=1)
    expected = torch.tensor([[float(pair_value(kernel, a, b)) for b in y] for a in x])
    torch.testing.assert_close(evaluate(kernel, x, y), expected.double(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_evaluate_between_points_and_themselves_is_gpytorch_pair_by_pair(name):
    """Repeated points make the matrix singular, which must not matter."""
    kernel, x = example_kernel(name), points(4)[[0, 1, 2, 3, 0, 1]]
    expected = torch.tensor([[float(pair_value(kernel, a, b)) for b in x] for a in x])
    torch.testing.assert_close(evaluate(kernel, x, x), expected.double(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_evaluate_of_batches_is_evaluate_of_each(name):
    kernel, x, y = example_kernel(name), points(8).reshape(2, 4, 3), points(6).reshape(2, 3, 3)
    each = torch.stack([evaluate(kernel, a, b) for a, b in zip(x, y, strict=True)])
    torch.testing.assert_close(evaluate(kernel, x, y), each, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", KERNELS)
def test_prior_variance_is_the_diagonal(name):
    kernel, x = example_kernel(name), points(6)
    expected = evaluate(kernel, x, x).diagonal()
    torch.testing.assert_close(prior_variance(kernel, x), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", DISTANCE_KERNELS)
def test_distances_have_a_distance_form(name):
    assert distance_form(example_kernel(name)) is not None


@pytest.mark.parametrize("name", GENERIC_KERNELS)
def test_other_kernels_have_no_distance_form(name):
    assert distance_form(example_kernel(name)) is None


def test_a_subclass_and_a_batch_of_kernels_have_no_distance_form():
    class Subclass(RBFKernel):
        pass

    assert distance_form(Subclass()) is None
    assert distance_form(RBFKernel(batch_shape=torch.Size([2]))) is None
    assert distance_form(ScaleKernel(RBFKernel(), batch_shape=torch.Size([2]))) is None


def test_squared_distances_are_never_negative_and_accurate_far_from_the_origin():
    x = (points(50, dim=25) + 100).float()
    squared = squared_distances(x, x)
    exact = torch.cdist(x.double(), x.double()).square()
    assert float(squared.min()) >= 0
    torch.testing.assert_close(squared.double(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "nu"), [("matern12", 0.5), ("matern32", 1.5), ("matern52", 2.5), ("rbf", None)]
)
def test_named_kernels_have_one_lengthscale_per_column(name, nu):
    kernel = base_kernel(name, {"bins": slice(0, 4), "bin_counts": slice(4, 6)})
    assert type(kernel) is (RBFKernel if nu is None else MaternKernel)
    assert getattr(kernel, "nu", None) == nu
    assert kernel.lengthscale.shape == (1, 6)


@pytest.mark.parametrize("name", ["matern12", "matern32", "matern52"])
def test_position_is_an_rbf_factor(name):
    kernel = base_kernel(name, {"bins": slice(0, 2), "position": slice(2, 4)}).double()
    lengthscales = torch.tensor([0.5, 0.7, 1.1, 2.0], dtype=torch.float64)
    set_lengthscales(kernel, lengthscales)
    bins = MaternKernel(nu=int(name[-2]) / 2, ard_num_dims=2).double()
    position = RBFKernel(ard_num_dims=2).double()
    bins.lengthscale, position.lengthscale = lengthscales[:2], lengthscales[2:]
    x, y = points(4, dim=4), points(3, seed=1, dim=4)
    expected = evaluate(bins, x[:, :2], y[:, :2]) * evaluate(position, x[:, 2:], y[:, 2:])
    assert isinstance(kernel, ProductKernel)
    torch.testing.assert_close(evaluate(kernel, x, y), expected, rtol=1e-7, atol=1e-7)


def test_position_of_the_rbf_is_a_column_like_any_other():
    kernel = base_kernel("rbf", {"bins": slice(0, 2), "position": slice(2, 4)}).double()
    lengthscales = torch.tensor([0.5, 0.7, 1.1, 2.0], dtype=torch.float64)
    set_lengthscales(kernel, lengthscales)
    x, y = points(4, dim=4), points(3, seed=1, dim=4)
    expected = torch.exp(-0.5 * torch.cdist(x / lengthscales, y / lengthscales).square())
    torch.testing.assert_close(evaluate(kernel, x, y), expected, rtol=1e-10, atol=1e-10)


def test_unknown_name_is_named():
    with pytest.raises(ValueError, match=r"kernel.*'cubic'.*rbf"):
        base_kernel("cubic", {"bins": slice(0, 2)})
