"""The kernel between signals: sums and means over patches, and vertex weights."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gcgp.kernel import ConvolutionalKernel
from gcgp.patches import Patches
from slow_reference import KERNELS, example_kernel, loop_kff, loop_kfu, ragged_patches


def plain_patches(counts, seed=0):
    """Patches with multiplicity 1, as a convolution returns them."""
    patches = ragged_patches(counts, seed=seed)
    ones = torch.ones(len(patches.values), dtype=torch.float64)
    return Patches(patches.values, ones, patches.offsets, patches.vertices)


def same(actual, expected):
    torch.testing.assert_close(actual.detach(), expected.detach(), rtol=1e-9, atol=1e-9)


def test_sum_is_the_double_sum_over_patches():
    kernel = ConvolutionalKernel(example_kernel("scaled rbf"))
    patches, inducing = plain_patches([3, 0, 1, 4]), plain_patches([5], seed=1).values
    weighted = kernel.weighted(patches)
    assert weighted.multiplicity.eq(1).all()
    same(kernel.kfu(weighted, inducing), loop_kfu(kernel.base, patches, inducing))
    with torch.no_grad():
        same(kernel.kff(weighted, weighted), loop_kff(kernel.base, patches, patches))


def test_mean_divides_by_the_number_of_patches():
    total = ConvolutionalKernel(example_kernel("rbf"), "sum")
    mean = ConvolutionalKernel(example_kernel("rbf"), "mean")
    patches, inducing = plain_patches([3, 0, 1, 4]), plain_patches([5], seed=1).values
    counts = torch.tensor([3.0, 1.0, 1.0, 4.0], dtype=torch.float64)  # no patches: 0 / 1
    weighted = mean.weighted(patches)
    same(mean.kfu(weighted, inducing), total.kfu(patches, inducing) / counts[:, None])
    same(mean.kff_diagonal(weighted), total.kff_diagonal(patches) / counts.square())
    with torch.no_grad():
        expected = total.kff(patches, patches) / (counts[:, None] * counts)
        same(mean.kff(weighted, weighted), expected)


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_vertex_weights_multiply_the_patches_of_each_signal(aggregate):
    weights = torch.tensor([0.5, -1.5, 2.0], dtype=torch.float64)
    kernel = ConvolutionalKernel(example_kernel("rbf"), aggregate, weights)
    patches, inducing = plain_patches([3, 3]), plain_patches([4], seed=1).values
    factor = weights if aggregate == "sum" else weights / 3
    expected = Patches(patches.values, factor.repeat(2), patches.offsets, patches.vertices)
    weighted = kernel.weighted(patches)
    same(kernel.kfu(weighted, inducing), loop_kfu(kernel.base, expected, inducing))
    same(kernel.kff_diagonal(weighted), loop_kff(kernel.base, expected, expected).diagonal())


def test_vertex_weights_multiply_given_multiplicities():
    weights = torch.tensor([0.5, -1.5, 2.0], dtype=torch.float64)
    patches = ragged_patches([3, 3])
    weighted = ConvolutionalKernel(example_kernel("rbf"), vertex_weights=weights).weighted(patches)
    same(weighted.multiplicity, patches.multiplicity * weights.repeat(2))


def test_vertex_weights_are_learnable():
    weights = torch.tensor([0.5, -1.5], dtype=torch.float64)
    kernel = ConvolutionalKernel(example_kernel("rbf"), "mean", weights)
    patches, inducing = plain_patches([2, 2]), plain_patches([3], seed=1).values

    def of_weights(_):
        weighted = kernel.weighted(patches)
        return kernel.kfu(weighted, inducing), kernel.kff_diagonal(weighted)

    assert "vertex_weights" in dict(kernel.named_parameters())
    assert torch.autograd.gradcheck(of_weights, (kernel.get_parameter("vertex_weights"),))


@pytest.mark.parametrize(("counts", "signal", "patches"), [([3, 3, 2], 2, 2), ([4, 3, 3], 0, 4)])
def test_vertex_weights_of_the_wrong_length_name_the_signal(counts, signal, patches):
    kernel = ConvolutionalKernel(RBFKernel(), vertex_weights=torch.ones(3))
    with pytest.raises(ValueError, match=f"signal {signal}: {patches} patches for 3 vertex_weights"):
        kernel.weighted(plain_patches(counts))


def test_unknown_aggregate_is_named():
    with pytest.raises(ValueError, match=r"aggregate.*'max'.*sum.*mean"):
        ConvolutionalKernel(RBFKernel(), aggregate="max")


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=25, deadline=None)
@given(inducing=arrays(np.float64, (5, 3), elements=st.integers(-4, 4).map(lambda i: i / 2)))
def test_kuu_is_symmetric_and_positive_semidefinite(name, inducing):
    kernel = ConvolutionalKernel(example_kernel(name))
    with torch.no_grad():
        kuu = kernel.kuu(torch.from_numpy(inducing))
    size = 1 + float(kuu.diagonal().max())
    torch.testing.assert_close(kuu, kuu.T, rtol=1e-9, atol=1e-9 * size)
    assert float(torch.linalg.eigvalsh(kuu).min()) > -1e-6 * size


def test_conversion_to_float64_keeps_vertex_weights():
    weights = torch.tensor([0.25, 2.0])
    kernel = ConvolutionalKernel(RBFKernel(), vertex_weights=weights).double()
    weighted = kernel.weighted(plain_patches([2]))
    assert weighted.multiplicity.dtype == torch.float64
    assert weighted.multiplicity.tolist() == [0.25, 2.0]


def test_one_far_inducing_patch_leaves_kernels_of_the_others_accurate():
    generator = torch.Generator().manual_seed(0)
    inducing = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    inducing[2] = -(2.0**31)
    kernel = ConvolutionalKernel(RBFKernel()).double()
    kernel.base.lengthscale = 1.0
    squared = (inducing[:, None] - inducing).square().sum(dim=-1)
    torch.testing.assert_close(kernel.kuu(inducing).detach(), torch.exp(-squared / 2), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("distance", [1e3, 1e4, 1e5])
def test_one_far_inducing_patch_leaves_sums_of_the_others_accurate(distance):
    generator = torch.Generator().manual_seed(0)
    inducing, values = torch.randn(2, 6, 3, generator=generator, dtype=torch.float64)
    inducing[2] = distance
    kernel = ConvolutionalKernel(RBFKernel()).double()
    kernel.base.lengthscale = 1.0
    ones = torch.ones(6, dtype=torch.float64)
    patches = Patches(values, ones, torch.tensor([0, 2, 6]), torch.arange(6))
    squared = (values[:, None] - inducing).square().sum(dim=-1)
    expected = torch.stack([torch.exp(-part / 2).sum(dim=0) for part in squared.split([2, 4])])
    torch.testing.assert_close(kernel.kfu(patches, inducing).detach(), expected, rtol=1e-9, atol=1e-9)
