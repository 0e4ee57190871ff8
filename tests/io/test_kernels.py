"""Kernels as JSON descriptions."""

import json

import gpytorch
import pytest
import torch
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)

from gcgp.io.kernels import COMPOSED_KERNELS, SIMPLE_KERNELS, describe_kernel, rebuild_kernel
from gcgp.io.tensors import module_state
from gcgp.kernel.base import evaluate
from slow_reference import KERNELS, example_kernel

FURTHER = {
    "constant": lambda: ConstantKernel(),
    "cosine": lambda: CosineKernel(),
    "linear ard": lambda: LinearKernel(ard_num_dims=3),
    "periodic ard": lambda: PeriodicKernel(ard_num_dims=3),
    "polynomial": lambda: PolynomialKernel(power=3),
    "columns": lambda: MaternKernel(nu=0.5, ard_num_dims=2, active_dims=[0, 2]),
    "scaled columns": lambda: ScaleKernel(RQKernel(active_dims=[1])),
    "sum of products": lambda: (
        ScaleKernel(RBFKernel(active_dims=[0]) * LinearKernel(active_dims=[1])) + RQKernel()
    ),
}
NAMES = [*KERNELS, *FURTHER]


def make(name):
    kernel = FURTHER[name]().double() if name in FURTHER else example_kernel(name)
    generator = torch.Generator().manual_seed(0)
    for parameter in kernel.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return kernel


def rebuilt(kernel):
    """As in a model file: the description as JSON, the state as tensors."""
    return rebuild_kernel("kernel", json.loads(json.dumps(describe_kernel(kernel))), module_state(kernel))


@pytest.mark.parametrize("name", NAMES)
def test_described_and_built_kernel_gives_the_same_matrix(name):
    kernel = make(name)
    generator = torch.Generator().manual_seed(1)
    x, y = torch.rand(2, 5, 3, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(evaluate(rebuilt(kernel), x, y), evaluate(kernel, x, y))


@pytest.mark.parametrize("name", NAMES)
def test_description_of_a_built_kernel_is_the_same(name):
    kernel = make(name)
    assert describe_kernel(rebuilt(kernel)) == describe_kernel(kernel)


def test_every_kind_of_kernel_is_among_the_examples():
    def classes(kernel):
        return {type(part).__name__ for part in kernel.modules() if isinstance(part, Kernel)}

    covered = set().union(*(classes(make(name)) for name in NAMES))
    assert covered == {*SIMPLE_KERNELS, *COMPOSED_KERNELS, "ScaleKernel"}


class OwnKernel(Kernel):
    def forward(self, x1, x2, diag=False, **_):
        return torch.ones(len(x1)) if diag else torch.ones(len(x1), len(x2))


class RBFLookalike(RBFKernel):
    pass


RBFLookalike.__name__ = "RBFKernel"


@pytest.mark.parametrize(
    "kernel",
    [
        OwnKernel(),
        RBFLookalike(),
        SpectralMixtureKernel(num_mixtures=2),
        RBFKernel(batch_shape=torch.Size([2])),
        ScaleKernel(OwnKernel()),
        RBFKernel() + OwnKernel(),
    ],
    ids=["own", "own with a known name", "other", "batch", "own inside", "own in a sum"],
)
def test_kernel_that_cannot_be_described_is_refused(kernel):
    with pytest.raises(ValueError, match="cannot be written to a model file; those that can: RBFKernel"):
        describe_kernel(kernel)


@pytest.mark.parametrize("name", ["Kernel", "eval", "GridInterpolationKernel"])
def test_only_known_classes_are_built(name):
    with pytest.raises(ValueError, match=name):
        rebuild_kernel(
            "kernel", {"class": name, "active_dims": None, "ard_num_dims": None, "arguments": {}}, {}
        )


def refused_or_the_same(kernel):
    """A kernel must come back as it was, or not be written at all."""
    kernel = kernel.double()
    x = torch.linspace(0, 2, 5, dtype=torch.float64)[:, None]
    try:
        describe_kernel(kernel)
    except ValueError:
        return
    with torch.no_grad():
        torch.testing.assert_close(evaluate(rebuilt(kernel), x, x), evaluate(kernel, x, x))


@pytest.mark.parametrize(
    "constraint",
    [
        gpytorch.constraints.Interval(0.1, 2.0),
        gpytorch.constraints.GreaterThan(0.2),
        gpytorch.constraints.Positive(transform=torch.exp, inv_transform=torch.log),
    ],
    ids=["interval", "greater than", "exponential"],
)
def test_constraint_of_the_lengthscale_is_not_lost(constraint):
    kernel = RBFKernel(lengthscale_constraint=constraint)
    kernel.lengthscale = 0.7
    refused_or_the_same(kernel)


def test_constraint_of_the_scale_is_not_lost():
    constraint = gpytorch.constraints.Interval(0.1, 2.0)
    kernel = ScaleKernel(RBFKernel(), outputscale_constraint=constraint)
    kernel.outputscale = 0.7
    refused_or_the_same(kernel)


def test_prior_of_the_lengthscale_does_no_harm():
    refused_or_the_same(RBFKernel(lengthscale_prior=gpytorch.priors.GammaPrior(2.0, 2.0)))
