"""Sums on devices without compiled loops, such as a GPU.

Values are checked on the CPU with `on_cpu` patched to False, and devices on `meta`, where tensors have no
values: an operation that reads one, or mixes it with a tensor on the CPU, fails.
"""

import pytest
import torch

from gcgp.kernel import ConvolutionalKernel, RotationAverage, sums
from gcgp.kernel.base import on_device
from slow_reference import KERNELS, example_kernel, loop_kff, loop_kfu, ragged_patches

COUNTS = [3, 0, 1, 4]
META = torch.device("meta")
MODES = pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad], ids=["plain", "gradient"])
EVERY_KERNEL = pytest.mark.parametrize("name", [*KERNELS, "rotation average"])


def kernel_of(name):
    if name != "rotation average":
        return example_kernel(name)
    width = ragged_patches(COUNTS).values.shape[1]
    rotations = torch.stack([torch.arange(width).roll(s) for s in range(width)])
    return RotationAverage(example_kernel("matern52"), rotations)


@pytest.fixture
def other_device(monkeypatch):
    """The CPU, treated as another device."""
    for module in ("blocks", "patch_sums", "rotation_sums"):
        monkeypatch.setattr(f"gcgp.kernel.engine.{module}.on_cpu", lambda values: False)


@EVERY_KERNEL
@MODES
@pytest.mark.usefixtures("other_device")
def test_sums_by_torch_are_the_loops(name, mode):
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


@pytest.mark.parametrize(
    "name", ["rbf", "scaled rbf", "matern12", "matern52", "rotation average"]
)  # without GPyTorch
@MODES
@pytest.mark.parametrize("block", [1 << 26, 5], ids=["one block", "small blocks"])
def test_devices_are_not_mixed(name, mode, block, monkeypatch):
    monkeypatch.setattr("gcgp.kernel.engine.blocks.BLOCK_ELEMENTS_ON_DEVICE", block)
    kernel = ConvolutionalKernel(kernel_of(name))
    patches, inducing = ragged_patches(COUNTS).to(META), ragged_patches([4], seed=9).values
    with mode():
        kfu, diagonal = kernel.kfu(patches, inducing), kernel.kff_diagonal(patches)
        both = kernel.kff(patches, patches)
    assert kfu.device == diagonal.device == both.device == META
    assert (kfu.shape, diagonal.shape, both.shape) == ((4, 4), (4,), (4, 4))
    assert all(parameter.device.type == "cpu" for parameter in kernel.parameters())


def test_gradients_flow_from_a_copy_to_the_original_kernel(monkeypatch):
    kernel = example_kernel("scaled rbf")
    assert on_device(kernel, torch.device("cpu")) is kernel
    expected = torch.autograd.grad(
        kernel.outputscale * kernel.base_kernel.lengthscale.sum(), kernel.parameters()
    )
    copied = on_device(kernel, META)
    assert copied.outputscale.device == copied.base_kernel.lengthscale.device == META
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *to: self.clone())  # the other device is the CPU
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, *to: self)
    copied = on_device(kernel, META)
    value = copied.outputscale * copied.base_kernel.lengthscale.sum()
    found = torch.autograd.grad(value, kernel.parameters())
    torch.testing.assert_close(found, expected)
