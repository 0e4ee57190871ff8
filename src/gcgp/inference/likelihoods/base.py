"""The interface of likelihoods."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from gcgp._runtime.options import Options
from gcgp.inference.shapes import Latent, Observed, PerSignal

if TYPE_CHECKING:
    from gcgp.inference.likelihoods.closed_form import ClosedFormLikelihood

MIN_PROBABILITY = 1e-12
"""Probabilities are at least this before their logarithm is taken."""


class Likelihood(Options):
    """p(y | f), where f ~ N(mean, diag(variance)): one row per signal, one column per latent function.

    There is one latent function per class, and one in regression. A subclass defines `expected_log` and,
    depending on its task, `probabilities` or `predictive_log`.
    """

    name: ClassVar[str]
    task: ClassVar[str]
    """`"classification"` or `"regression"`."""

    @abstractmethod
    def expected_log(self, mean: Latent, variance: Latent, targets: Observed) -> PerSignal:
        """E log p(y | f), differentiable in mean and variance."""

    def sites(self, mean: Latent, variance: Latent, targets: Observed) -> tuple[PerSignal, Latent, Latent]:
        """E log p(y | f), its derivative by the mean, and −2 times its derivative by the variance.

        By automatic differentiation. Where log p is not concave, the last may be negative.
        """
        leaves = mean.detach().requires_grad_(), variance.detach().requires_grad_()
        with torch.enable_grad():
            values = self.expected_log(*leaves, targets)
            by_mean, by_variance = torch.autograd.grad(values.sum(), leaves)
        return values.detach(), by_mean, -2 * by_variance

    def probabilities(self, mean: Latent, variance: Latent) -> Latent:
        """Class probabilities E p(y | f)."""
        raise NotImplementedError(f"{type(self).__name__} is a likelihood for {self.task}")

    def predictive_log(self, mean: Latent, variance: Latent, targets: Observed) -> PerSignal:
        """log E p(y | f)."""
        return target_logs(self.probabilities(mean, variance), targets)

    def closed_form(self) -> ClosedFormLikelihood:
        """The closed-form likelihood by which hyperparameters are selected."""
        from gcgp.inference.likelihoods import Dirichlet, Gaussian  # subclasses of this class

        return Dirichlet() if self.task == "classification" else Gaussian()

    def predictive(self) -> Likelihood:
        """The likelihood with which predictions are made."""
        return self

    def resampled(self, seed: int) -> Likelihood:
        """The same likelihood with other random draws, for one step of stochastic optimization."""
        return self


def target_logs(probabilities: Latent, targets: Observed) -> PerSignal:
    """Log probability of the class of each signal."""
    return probabilities.gather(1, targets[:, None])[:, 0].clamp_min(MIN_PROBABILITY).log()


def row_chunks(rows: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The tensors in chunks of so many rows; tensors without rows are one chunk."""
    return zip(*(tensor.contiguous().split(rows) for tensor in tensors), strict=True)
