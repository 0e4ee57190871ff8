"""Sums where our own loops do not run, as on a GPU: by torch alone, right, and all in one place.

What is right is shown on the CPU, told that it is another place; that nothing is mixed up, with torch's
device `meta`, whose tensors have shapes but no numbers: no step may look at one, or at a tensor of the CPU.
"""

import pytest
import torch

from gcgp.kernel import ConvolutionalKernel, RotationAverage, sums
from gcgp.kernel.base import on_device
from slow_reference import KERNELS, example_kernel, loop_kff, loop_kfu, ragged_patches

COUNTS = [3, 0, 1, 4]
META = torch.device("meta")
MODES = pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad], ids=["plain", "gradient"])
EVERY_KERNEL = pytest.mark.parametrize("name", [*KERNELS, "pooled"])


def kernel_of(name):
    if name != "pooled":
        return example_kernel(name)
    width = ragged_patches(COUNTS).values.shape[1]
    turns = torch.stack([torch.arange(width).roll(s) for s in range(width)])
    return RotationAverage(example_kernel("matern52"), turns)


@pytest.fixture
def elsewhere(monkeypatch):
    """The CPU, which the sums take for another device."""
    for module in ("blocks", "sums", "turned"):
        monkeypatch.setattr(f"gcgp.kernel.{module}.on_cpu", lambda values: False)


@EVERY_KERNEL
@MODES
def test_sums_by_torch_alone_are_the_loops(elsewhere, name, mode):
    kernel, patches = kernel_of(name), ragged_patches(COUNTS)
    inducing = ragged_patches([4], seed=9).values
    tolerance = 1e-6 if "matern12" in name else 1e-9
    with mode():
        kfu, diagonal = sums.kfu(kernel, patches, inducing), sums.kff_diagonal(kernel, patches)
    assert kfu.requires_grad == diagonal.requires_grad == (mode is torch.enable_grad)
    expected = loop_kff(kernel, patches, patches).diagonal()
    torch.testing.assert_close(
        kfu.detach(), loop_kfu(kernel, patches, inducing), rtol=tolerance, atol=tolerance
    )
    torch.testing.assert_close(diagonal.detach(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["rbf", "scaled rbf", "matern12", "matern52", "pooled"])  # GPyTorch's look
@MODES
@pytest.mark.parametrize("block", [1 << 26, 5], ids=["one block", "small blocks"])
def test_nothing_is_mixed_up_between_devices(name, mode, block, monkeypatch):
    monkeypatch.setattr("gcgp.kernel.engine.blocks.BLOCK_ELEMENTS_ELSEWHERE", block)
    kernel = ConvolutionalKernel(kernel_of(name))
    patches, inducing = ragged_patches(COUNTS).to(META), ragged_patches([4], seed=9).values
    with mode():
        kfu, diagonal = kernel.kfu(patches, inducing), kernel.kff_diagonal(patches)
        both = kernel.kff(patches, patches)
    assert kfu.device == diagonal.device == both.device == META
    assert (kfu.shape, diagonal.shape, both.shape) == ((4, 4), (4,), (4, 4))
    assert all(parameter.device.type == "cpu" for parameter in kernel.parameters())


def test_gradients_come_back_from_a_copy_of_the_kernel(monkeypatch):
    kernel = example_kernel("scaled rbf")
    assert on_device(kernel, torch.device("cpu")) is kernel
    expected = torch.autograd.grad(
        kernel.outputscale * kernel.base_kernel.lengthscale.sum(), kernel.parameters()
    )
    copied = on_device(kernel, META)
    assert copied.outputscale.device == copied.base_kernel.lengthscale.device == META
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *to: self.clone())  # "there" is here
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, *to: self)
    copied = on_device(kernel, META)
    value = copied.outputscale * copied.base_kernel.lengthscale.sum()
    found = torch.autograd.grad(value, kernel.parameters())
    torch.testing.assert_close(found, expected)
