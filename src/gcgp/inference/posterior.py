"""The Bayesian linear model f = Φv, v ~ N(0, s²I), observed with noise that may differ between signals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from gcgp._runtime.threads import parallel_map
from gcgp.inference.cholesky import stable_cholesky
from gcgp.inference.statistics import gram

LOG_2PI = math.log(2 * math.pi)
Piece = TypeVar("Piece")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Posterior:
    """Posterior of C latent functions, each f_c = φᵀv_c with v_c ~ N(weights_c, s² (L_c L_cᵀ)⁻¹)."""

    variance: float | Float[Tensor, ""]
    """s², the variance of the GP, by which the base kernel is multiplied."""
    weights: Float[Tensor, "M C"]
    roots: Float[Tensor, "C M M"]
    """L_c, the lower Cholesky factor of I + s² Σ_n φ_n φ_nᵀ / σ²_nc."""

    def mean(self, features: Float[Tensor, "n M"]) -> Float[Tensor, "n C"]:
        """Posterior means of f."""
        return features @ self.weights

    def explained_variance(self, features: Float[Tensor, "n M"]) -> Float[Tensor, "n C"]:
        """Posterior variance of φᵀv, without what the features leave unexplained."""

        def of_latent(root: Float[Tensor, "M M"]) -> Float[Tensor, "n"]:
            solved = torch.linalg.solve_triangular(root, features.T, upper=False)
            return self.variance * solved.square().sum(dim=0)

        return torch.stack(map_latents(of_latent, self.roots.unbind()), dim=1)

    def predict(
        self, features: Float[Tensor, "n M"], residual: Float[Tensor, "n"]
    ) -> tuple[Float[Tensor, "n C"], Float[Tensor, "n C"]]:
        """Posterior mean and variance of f."""
        variance = self.explained_variance(features) + self.variance * residual[:, None]
        return self.mean(features), variance.clamp_min(0.0)

    def divergence(self) -> Float[Tensor, ""]:
        """KL divergence of the posterior from the prior, of all latent functions together."""
        size = self.roots.shape[-1]
        identity = torch.eye(size, dtype=self.roots.dtype).expand_as(self.roots)
        inverse = torch.linalg.solve_triangular(self.roots, identity, upper=False)
        spread = inverse.square().sum() + self.weights.square().sum() / self.variance
        log_determinants = 2 * self.roots.diagonal(dim1=1, dim2=2).log().sum()
        return 0.5 * (spread - self.weights.numel() + log_determinants)

    def leave_one_out(
        self,
        features: Float[Tensor, "n M"],
        residual: Float[Tensor, "n"],
        linear: Float[Tensor, "n C"],
        precision: Float[Tensor, "n C"],
    ) -> tuple[Float[Tensor, "n C"], Float[Tensor, "n C"]]:
        """Mean and variance of f at training signals, each predicted from all the others; see `left_out`."""
        mean, spread = left_out(self.mean(features), self.explained_variance(features), linear, precision)
        return mean, spread + self.variance * residual[:, None]


def left_out(
    mean: Float[Tensor, "*n"],
    explained: Float[Tensor, "*n"],
    linear: Float[Tensor, "*n"],
    precision: Float[Tensor, "*n"],
) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
    """Mean and explained variance of f at training signals without what each itself has told, in closed form.

    A signal's own part in the posterior is exp(linear·f − precision·f²/2): with a target t and noise σ²
    these are t/σ² and 1/σ².
    """
    left = (1 - explained * precision).clamp_min(1e-9)
    return (mean - explained * linear) / left, explained / left


@dataclass(frozen=True)
class NormalEquations:
    """What one latent function is told by its data: sums over signals weighted by 1/σ²_n."""

    gram: Float[Tensor, "M M"]
    """Σ φφᵀ/σ²."""
    cross: Float[Tensor, "M"]
    """Σ φt/σ²."""
    squares: Float[Tensor, ""]
    """Σ t²/σ²."""
    residual: Float[Tensor, ""]
    """Σ r/σ²."""
    log_noise: Float[Tensor, ""]
    """Σ log 2πσ²."""

    def precision(self, variance: float | Tensor) -> Float[Tensor, "M M"]:
        """I + s²·gram."""
        precision = variance * self.gram
        precision.diagonal().add_(1.0)
        return precision

    def solve(self, variance: float | Tensor) -> tuple[Float[Tensor, "M"], Float[Tensor, "M M"]]:
        """Posterior weights and the factor of their precision."""
        root = precision_factor(self.precision(variance))
        return torch.cholesky_solve(variance * self.cross[:, None], root)[:, 0], root

    def moments(
        self, variance: float | Tensor, features: Float[Tensor, "n M"]
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
        """Posterior mean of f and explained variance of signals, where no factor is needed afterwards."""
        weights, forms = Solved.apply(self.precision(variance), variance * self.cross, features)
        return features @ weights, variance * forms

    def bound(
        self, variance: float | Tensor, weights: Float[Tensor, "M"], root: Float[Tensor, "M M"]
    ) -> Float[Tensor, ""]:
        """The collapsed lower bound on log p(t) of Titsias (2009), with noise that varies by signal.

        `weights` and `root` are those of `solve`.
        """
        log_determinant = 2 * root.diagonal().log().sum()
        fit = self.squares - self.cross @ weights
        return -0.5 * (self.log_noise + log_determinant + fit + variance * self.residual)


def precision_factor(precision: Float[Tensor, "M M"]) -> Float[Tensor, "M M"]:
    """Lower factor of I + s²·gram, which has one unless s²·gram exceeds the identity by 1e15 or so."""
    root, failed = torch.linalg.cholesky_ex(precision)
    if not failed:
        return root.contiguous()  # as it is once saved and loaded; LAPACK's is column by column
    cause = "the prior variance of signals is too large for the noise to count beside it"
    return stable_cholesky(precision, 1e-15, "the precision of the posterior", cause)


class Solved(torch.autograd.Function):
    """A⁻¹b, and φᵀA⁻¹φ of each row φ, for a positive definite A.

    By hand because autograd also goes back through the factor of A, which takes 1.7 times as long.
    """

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, matrix: Float[Tensor, "M M"], vector: Float[Tensor, "M"], rows: Float[Tensor, "n M"]
    ) -> tuple[Float[Tensor, "M"], Float[Tensor, "n"]]:
        root = precision_factor(matrix)
        weights = torch.cholesky_solve(vector[:, None], root)[:, 0]
        half = torch.linalg.solve_triangular(root, rows.T, upper=False)
        ctx.save_for_backward(root, weights, half)
        return weights, half.square().sum(dim=0)

    @staticmethod
    @once_differentiable
    def backward(  # noqa: D102
        ctx: Any, of_weights: Float[Tensor, "M"], of_forms: Float[Tensor, "n"]
    ) -> tuple[Float[Tensor, "M M"], Float[Tensor, "M"], Float[Tensor, "n M"]]:
        root, weights, half = ctx.saved_tensors
        whole = torch.linalg.solve_triangular(root.T, half, upper=True).T  # A⁻¹φ
        of_vector = torch.cholesky_solve(of_weights[:, None], root)[:, 0]
        sized = whole * of_forms.abs().sqrt()[:, None]
        raising = of_forms > 0
        of_matrix = gram(sized[~raising]).sub_(gram(sized[raising]))  # −Σ g (A⁻¹φ)(A⁻¹φ)ᵀ, each half as dear
        both = torch.outer(of_vector, weights)
        of_matrix.sub_(both, alpha=0.5).sub_(both.T, alpha=0.5)
        return of_matrix, of_vector, whole.mul_(2 * of_forms[:, None])


def map_latents(work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
    """The results of all pieces; without gradients each core takes pieces of its own.

    A factorization of a few hundred rows gains little from a second core, ten of them gain all.
    """
    return list(map(work, pieces) if torch.is_grad_enabled() else parallel_map(work, pieces))
