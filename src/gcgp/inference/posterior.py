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
from gcgp.inference.shapes import Latent, Matrix, PerSignal, Rows, Scalar
from gcgp.inference.statistics import gram

LOG_2PI = math.log(2 * math.pi)
Piece = TypeVar("Piece")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Posterior:
    """Posterior of C latent functions, each f_c = φᵀv_c with v_c ~ N(weights_c, s² (L_c L_cᵀ)⁻¹).

    Features leave a part of f unexplained, whose prior variance is s² · `residual` (see `Features`).

    >>> features = torch.eye(2, dtype=torch.float64)
    >>> posterior = Posterior(4.0, torch.zeros_like(features[:, :1]), features[None])  # the prior
    >>> posterior.covariance(features, features @ features.T)
    tensor([[[4., 0.],
             [0., 4.]]], dtype=torch.float64)
    >>> posterior.sample(features, torch.zeros_like(features[0]), count=100).shape
    torch.Size([100, 2, 1])
    """

    variance: float | Scalar
    """s², the variance of the GP, by which the base kernel is multiplied."""
    weights: Float[Tensor, "M C"]
    roots: Float[Tensor, "C M M"]
    """L_c, the lower Cholesky factor of I + s² Σ_n φ_n φ_nᵀ / σ²_nc."""

    def mean(self, features: Rows) -> Latent:
        """Posterior means of f."""
        return features @ self.weights

    def explained_variance(self, features: Rows) -> Latent:
        """Posterior variance of φᵀv, without the unexplained part."""

        def of_latent(root: Matrix) -> PerSignal:
            return self.variance * _half_solve(root, features).square().sum(dim=0)

        return torch.stack(map_latents(of_latent, self.roots.unbind()), dim=1)

    def predict(self, features: Rows, residual: PerSignal) -> tuple[Latent, Latent]:
        """Posterior mean and variance of f."""
        variance = self.explained_variance(features) + self.variance * residual[:, None]
        return self.mean(features), variance.clamp_min(0.0)

    def covariance(self, features: Rows, prior: Float[Tensor, "n n"]) -> Float[Tensor, "C n n"]:
        """Joint posterior covariance of f at n signals: s² (Φ(L_c L_cᵀ)⁻¹Φᵀ + Kff − ΦΦᵀ).

        `prior` is their Kff under the kernel of the features, without s²: the features determine only the
        variances of the unexplained part.
        """
        half = torch.stack([_half_solve(root, features) for root in self.roots])
        return self.variance * (half.mT @ half + prior - features @ features.T)

    def sample(
        self, features: Rows, residual: PerSignal, count: int, seed: int = 0
    ) -> Float[Tensor, "count n C"]:
        """Samples of f at n signals, jointly for all signals and independent between latent functions.

        The unexplained part is sampled independently for each signal; for its covariance see `covariance`.
        """
        generator = torch.Generator().manual_seed(seed)
        shape = (count, len(self.roots), features.shape[1] + len(features))
        normal = torch.randn(shape, generator=generator, dtype=torch.float64)
        whitened, independent = normal.split([features.shape[1], len(features)], dim=2)
        half = torch.stack([_half_solve(root, features) for root in self.roots])
        explained = torch.einsum("scm,cmn->scn", whitened, half)
        deviation = explained + residual.clamp_min(0.0).sqrt() * independent
        return self.mean(features) + self.variance**0.5 * deviation.mT

    def divergence(self) -> Scalar:
        """KL divergence from the prior, of all latent functions together."""
        identity = torch.eye(self.roots.shape[-1], dtype=self.roots.dtype).expand_as(self.roots)
        inverse = torch.linalg.solve_triangular(self.roots, identity, upper=False)
        spread = inverse.square().sum() + self.weights.square().sum() / self.variance
        log_determinants = 2 * self.roots.diagonal(dim1=1, dim2=2).log().sum()
        return 0.5 * (spread - self.weights.numel() + log_determinants)

    def leave_one_out(
        self, features: Rows, residual: PerSignal, linear: Latent, precision: Latent
    ) -> tuple[Latent, Latent]:
        """Mean and variance of f at training signals, each given all others; see `left_out`."""
        mean, spread = left_out(self.mean(features), self.explained_variance(features), linear, precision)
        return mean, spread + self.variance * residual[:, None]


def _half_solve(root: Matrix, features: Rows) -> Float[Tensor, "M n"]:
    """L⁻¹Φᵀ."""
    return torch.linalg.solve_triangular(root, features.T, upper=False)


def left_out(
    mean: Float[Tensor, "*n"],
    explained: Float[Tensor, "*n"],
    linear: Float[Tensor, "*n"],
    precision: Float[Tensor, "*n"],
) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
    """Leave-one-out mean and explained variance of f at training signals, in closed form.

    The factor of a signal in the posterior is exp(linear·f − precision·f²/2): with a target t and noise σ²
    these are t/σ² and 1/σ².
    """
    left = (1 - explained * precision).clamp_min(1e-9)
    return (mean - explained * linear) / left, explained / left


@dataclass(frozen=True)
class NormalEquations:
    """The data of one latent function: sums over signals weighted by 1/σ²_n."""

    gram: Matrix
    """Σ φφᵀ/σ²."""
    cross: Float[Tensor, "M"]
    """Σ φt/σ²."""
    squares: Scalar
    """Σ t²/σ²."""
    residual: Scalar
    """Σ r/σ²."""
    log_noise: Scalar
    """Σ log 2πσ²."""

    def precision(self, variance: float | Tensor, out: Matrix | None = None) -> Matrix:
        """I + s²·gram, which is written to `out` if that is given."""
        precision = variance * self.gram if out is None else torch.mul(self.gram, variance, out=out)
        precision.diagonal().add_(1.0)
        return precision

    def solve(self, variance: float | Tensor, out: Matrix | None = None) -> tuple[Float[Tensor, "M"], Matrix]:
        """Posterior weights and the factor of their precision, which is written to `out` if that is given."""
        root = precision_factor(self.precision(variance, out), out)
        return torch.cholesky_solve(variance * self.cross[:, None], root)[:, 0], root

    def moments(self, variance: float | Tensor, features: Rows) -> tuple[PerSignal, PerSignal]:
        """Posterior mean and explained variance of f at signals, if the factor is not needed afterwards."""
        weights, forms = Solved.apply(self.precision(variance), variance * self.cross, features)
        return features @ weights, variance * forms

    def bound(self, variance: float | Tensor, weights: Float[Tensor, "M"], root: Matrix) -> Scalar:
        """The collapsed bound on log p(t) of Titsias (2009), with noise that varies by signal.

        `weights` and `root` are those of `solve`.
        """
        log_determinant = 2 * root.diagonal().log().sum()
        fit = self.squares - self.cross @ weights
        return -0.5 * (self.log_noise + log_determinant + fit + variance * self.residual)


def precision_factor(precision: Matrix, out: Matrix | None = None) -> Matrix:
    """Lower factor of I + s²·gram, which exists unless s²·gram exceeds the identity by about 1e15.

    With `out`, which may be the matrix itself, it is written there, and there are no gradients.
    """
    if out is None and (precision.requires_grad and torch.is_grad_enabled()):
        root, failed = torch.linalg.cholesky_ex(precision)
        root = root.contiguous()  # the layout of a saved model; LAPACK's is column-major
    else:
        root = torch.empty_like(precision) if out is None else out
        failed = torch.empty((), dtype=torch.int32)
        # The upper factor in LAPACK's column-major layout is the lower one in ours: nothing is copied.
        # The symmetric matrix is transposed too, so that it may share its memory with the result.
        torch.linalg.cholesky_ex(precision.detach().mT, upper=True, out=(root.mT, failed))
    if not failed:
        return root
    cause = "the prior variance of signals is too large compared with the noise"
    root = stable_cholesky(precision, 1e-15, "the precision of the posterior", cause)
    return root if out is None else out.copy_(root)


class Solved(torch.autograd.Function):
    """A⁻¹b, and φᵀA⁻¹φ of each row φ, for a positive definite A.

    Its own backward pass, because autograd also goes back through the factor of A, which takes 1.7 times as
    long.
    """

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, matrix: Matrix, vector: Float[Tensor, "M"], rows: Rows
    ) -> tuple[Float[Tensor, "M"], PerSignal]:
        root = precision_factor(matrix)
        weights = torch.cholesky_solve(vector[:, None], root)[:, 0]
        half = _half_solve(root, rows)
        ctx.save_for_backward(root, weights, half)
        return weights, half.square().sum(dim=0)

    @staticmethod
    @once_differentiable
    def backward(  # noqa: D102
        ctx: Any, by_weights: Float[Tensor, "M"], by_forms: PerSignal
    ) -> tuple[Matrix, Float[Tensor, "M"], Rows]:
        root, weights, half = ctx.saved_tensors
        whole = torch.linalg.solve_triangular(root.T, half, upper=True).T  # A⁻¹φ
        by_vector = torch.cholesky_solve(by_weights[:, None], root)[:, 0]
        scaled = whole * by_forms.abs().sqrt()[:, None]
        positive = by_forms > 0
        # −Σ g (A⁻¹φ)(A⁻¹φ)ᵀ as two Gram matrices, which take half the time of a general product.
        by_matrix = gram(scaled[~positive]).sub_(gram(scaled[positive]))
        outer = torch.outer(by_vector, weights)
        by_matrix.sub_(outer, alpha=0.5).sub_(outer.T, alpha=0.5)
        return by_matrix, by_vector, whole.mul_(2 * by_forms[:, None])


def map_latents(work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> list[Result]:
    """The results of all pieces; without gradients they are distributed over the cores.

    Factorizations of a few hundred rows gain little from several cores each.
    """
    return list(map(work, pieces) if torch.is_grad_enabled() else parallel_map(work, pieces))
