"""Sums over patches compared with double loops, for each implementation."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gcgp.kernel import sums
from gcgp.kernel.base import evaluate
from gcgp.kernel.engine import blocks
from gcgp.patches import Patches
from slow_reference import KERNELS, example_kernel, loop_kff, loop_kfu, ragged_patches

COUNTS = [3, 0, 1, 4]
"""Patches of each signal."""
MODES = pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad], ids=["no gradient", "gradient"])
EVERY_KERNEL = pytest.mark.parametrize("name", KERNELS)
FEW_KERNELS = pytest.mark.parametrize("name", ["scaled rbf", "matern32", "rational quadratic"])


def inducing_patches(count=4, dtype=torch.float64):
    return ragged_patches([count], seed=9, dtype=dtype).values


def close(actual, expected, name=""):
    # The distance of a patch to itself is not quite 0, and the Matérn 1/2 has a kink there.
    tolerance = 1e-6 if "matern12" in name else 1e-9
    torch.testing.assert_close(actual.detach(), expected, rtol=tolerance, atol=tolerance)


@EVERY_KERNEL
@MODES
def test_kfu_is_the_loop_over_patches(name, mode):
    kernel, patches, inducing = example_kernel(name), ragged_patches(COUNTS), inducing_patches()
    with mode():
        actual = sums.kfu(kernel, patches, inducing)
    assert actual.requires_grad == (mode is torch.enable_grad)
    close(actual, loop_kfu(kernel, patches, inducing), name)


@EVERY_KERNEL
@MODES
def test_kff_is_the_double_loop_over_patches(name, mode):
    kernel, left, right = example_kernel(name), ragged_patches(COUNTS), ragged_patches([2, 3], seed=1)
    with mode():
        actual = sums.kff(kernel, left, right)
    assert actual.requires_grad == (mode is torch.enable_grad)
    close(actual, loop_kff(kernel, left, right), name)


@MODES
def test_kff_of_a_signal_without_patches_is_zero(mode):
    patches = ragged_patches(COUNTS)
    with mode():
        actual = sums.kff(example_kernel("rbf"), patches, patches)
    assert actual[:, 1].eq(0).all()
    close(actual, loop_kff(example_kernel("rbf"), patches, patches))


@EVERY_KERNEL
@MODES
def test_diagonal_is_the_double_loop_over_patches(name, mode):
    kernel, patches = example_kernel(name), ragged_patches(COUNTS)
    with mode():
        actual = sums.kff_diagonal(kernel, patches)
    assert actual.requires_grad == (mode is torch.enable_grad)
    close(actual, loop_kff(kernel, patches, patches).diagonal(), name)


@MODES
@pytest.mark.parametrize("counts", [[0], [0, 0]])
def test_signals_without_any_patch_have_zero_sums(counts, mode):
    kernel, patches = example_kernel("scaled rbf"), ragged_patches(counts)
    with mode():
        assert sums.kfu(kernel, patches, inducing_patches()).eq(0).all()
        assert sums.kff_diagonal(kernel, patches).eq(0).all()
        assert sums.kff(kernel, patches, ragged_patches([2, 1])).shape == (len(counts), 2)


@FEW_KERNELS
@MODES
@pytest.mark.parametrize("elements", [1, 7, 50])
def test_block_boundaries_change_nothing(name, mode, elements, monkeypatch):
    kernel = example_kernel(name)
    patches, inducing = ragged_patches([6, 0, 1, 9, 0, 2, 0]), inducing_patches()
    right = ragged_patches([5, 2], seed=2)

    def everything():
        with mode():
            kfu = sums.kfu(kernel, patches, inducing)
            return kfu, sums.kff(kernel, patches, right), sums.kff_diagonal(kernel, patches)

    whole = everything()
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", elements)
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS_WITH_GRADIENT", elements)
    for cut, uncut in zip(everything(), whole, strict=True):
        close(cut, uncut.detach())


@EVERY_KERNEL
@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_float32_is_close_to_float64(name, shift):
    single = ragged_patches([30, 0, 1, 40], dtype=torch.float32)
    single = Patches(single.values + shift, single.multiplicity, single.offsets, single.vertices)
    double = Patches(single.values.double(), single.multiplicity.double(), single.offsets, single.vertices)
    inducing = single.values[::5]  # the usual case: inducing patches are among the patches
    with torch.no_grad():
        kernel = example_kernel(name)
        exact = sums.kfu(kernel, double, inducing.double()), sums.kff_diagonal(kernel, double)
        kernel = kernel.float()
        rough = sums.kfu(kernel, single, inducing), sums.kff_diagonal(kernel, single)
    for actual, expected in zip(rough, exact, strict=True):
        assert actual.dtype == torch.float32
        size = float(expected.abs().max())
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-4 * size)


@EVERY_KERNEL
def test_float32_of_a_patch_and_itself(name):
    """Inducing patches are patches of training signals: Kuf has entries k_g(x, x)."""
    kernel, patches = example_kernel(name), ragged_patches([1] * 40)
    exact = evaluate(kernel, patches.values, patches.values)
    values = patches.values.float()
    single = Patches(values, torch.ones(len(values)), patches.offsets, patches.vertices)
    with torch.no_grad():
        rough = sums.kfu(kernel.float(), single, values)
    torch.testing.assert_close(rough.double(), exact.detach(), rtol=1e-4, atol=1e-4)


GRADIENT_KERNELS = ["rbf", "rbf ard", "matern32", "matern52 ard", "rational quadratic", "product"]


def gradient_inputs(kernel, patches):
    lengthscales = [p for name, p in kernel.named_parameters() if "lengthscale" in name]
    values, multiplicity = patches.values.requires_grad_(), patches.multiplicity.requires_grad_()
    return values, multiplicity, *lengthscales


@pytest.mark.parametrize("name", [*GRADIENT_KERNELS, "matern12"])
@pytest.mark.parametrize("elements", [1 << 20, 8])
def test_gradient_of_kfu(name, elements, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS_WITH_GRADIENT", elements)
    kernel, patches = example_kernel(name), ragged_patches([2, 0, 1, 2])
    values, multiplicity, *lengthscales = gradient_inputs(kernel, patches)
    inducing = inducing_patches(2).requires_grad_()

    def kfu(values, multiplicity, inducing, *_):
        return sums.kfu(kernel, Patches(values, multiplicity, patches.offsets, patches.vertices), inducing)

    assert torch.autograd.gradcheck(kfu, (values, multiplicity, inducing, *lengthscales), fast_mode=True)


@pytest.mark.parametrize("name", GRADIENT_KERNELS)
@pytest.mark.parametrize("elements", [1 << 20, 4])
def test_gradient_of_diagonal(name, elements, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", elements)
    kernel, patches = example_kernel(name), ragged_patches([2, 0, 1, 4])

    def diagonal(values, multiplicity, *_):
        current = Patches(values, multiplicity, patches.offsets, patches.vertices)
        return sums.kff_diagonal(kernel, current)

    assert torch.autograd.gradcheck(diagonal, gradient_inputs(kernel, patches), fast_mode=True)


@EVERY_KERNEL
def test_gradients_are_finite_where_patches_coincide(name):
    kernel, patches = example_kernel(name), ragged_patches([4, 2])
    values = patches.values.clone()
    values[1] = values[0]
    values.requires_grad_()
    patches = Patches(values, patches.multiplicity, patches.offsets, patches.vertices)
    total = sums.kfu(kernel, patches, values[:3]).sum() + sums.kff_diagonal(kernel, patches).sum()
    total.backward()
    assert values.grad is not None
    assert values.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in kernel.parameters())


@st.composite
def patch_sets(draw):
    """Few signals with patches on a coarse grid, so that some repeat."""
    counts = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    total = sum(counts)
    values = draw(arrays(np.float64, (total, 3), elements=st.integers(-2, 2).map(float)))
    multiplicity = draw(arrays(np.float64, total, elements=st.integers(-2, 3).map(float)))
    offsets = torch.tensor([0, *np.cumsum(counts).tolist()])
    return Patches(torch.from_numpy(values), torch.from_numpy(multiplicity), offsets, torch.arange(total))


@EVERY_KERNEL
@settings(max_examples=25, deadline=None)
@given(patches=patch_sets())
def test_kff_is_symmetric_and_positive_semidefinite(name, patches):
    kernel = example_kernel(name)
    with torch.no_grad():
        kff, diagonal = sums.kff(kernel, patches, patches), sums.kff_diagonal(kernel, patches)
    size = 1 + float(kff.diagonal().abs().max())
    torch.testing.assert_close(kff, kff.T, rtol=1e-9, atol=1e-9 * size)
    torch.testing.assert_close(diagonal, kff.diagonal(), rtol=1e-6, atol=1e-6 * size)
    assert float(torch.linalg.eigvalsh(kff).min()) > -1e-6 * size


@FEW_KERNELS
@settings(max_examples=25, deadline=None)
@given(patches=patch_sets(), seed=st.integers(0, 1000))
def test_order_of_patches_changes_nothing(name, patches, seed):
    generator = torch.Generator().manual_seed(seed)
    order = torch.cat(
        [
            int(a) + torch.randperm(int(b - a), generator=generator)
            for a, b in zip(patches.offsets[:-1], patches.offsets[1:], strict=True)
        ]
    )
    shuffled = Patches(patches.values[order], patches.multiplicity[order], patches.offsets, patches.vertices)
    unchanged(example_kernel(name), patches, shuffled)


@FEW_KERNELS
@settings(max_examples=25, deadline=None)
@given(patches=patch_sets())
def test_merging_repeated_patches_changes_nothing(name, patches):
    merged = patches.distinct()
    assert len(merged) == len(patches)
    unchanged(example_kernel(name), patches, merged)


def unchanged(kernel, patches, other):
    inducing = torch.tensor([[0.0, 1.0, 0.5], [1.0, -1.0, 0.0]], dtype=torch.float64)
    with torch.no_grad():
        close(sums.kfu(kernel, other, inducing), sums.kfu(kernel, patches, inducing))
        # Loose: a patch and its copy are a rounding apart before they are merged, and Matérn 1/2 has a kink.
        expected = sums.kff_diagonal(kernel, patches)
        torch.testing.assert_close(sums.kff_diagonal(kernel, other), expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("name", ["matern32", "scaled rbf"])
def test_gradient_of_multiplicities_only(name, monkeypatch):
    """Vertex weights are learned with a fixed kernel."""
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 8)
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS_WITH_GRADIENT", 8)
    kernel = example_kernel(name).requires_grad_(False)
    patches, inducing = ragged_patches([2, 0, 4, 3]), inducing_patches(2)

    def everything(multiplicity):
        some = Patches(patches.values, multiplicity, patches.offsets, patches.vertices)
        kff = sums.kff(kernel, some, ragged_patches([2, 3], seed=1))
        return sums.kfu(kernel, some, inducing), kff, sums.kff_diagonal(kernel, some)

    assert torch.autograd.gradcheck(everything, (patches.multiplicity.requires_grad_(),), fast_mode=True)


@pytest.mark.parametrize("name", ["scaled rbf", "matern32", "rational quadratic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_signals_without_patches_beside_signals_too_wide_for_products(name, dtype):
    """The first signal has no patches and is all that remains for matrix products."""
    kernel, patches = example_kernel(name).to(dtype), ragged_patches([0, 3], dtype=dtype)
    patches = Patches(1e6 * patches.values, patches.multiplicity, patches.offsets, patches.vertices)
    with torch.no_grad():
        kfu, diagonal = sums.kfu(kernel, patches, patches.values), sums.kff_diagonal(kernel, patches)
    assert kfu[0].eq(0).all()
    assert diagonal[0] == 0
    torch.testing.assert_close(diagonal[1], (patches.multiplicity * kfu[1]).sum(), rtol=1e-4, atol=1e-4)
