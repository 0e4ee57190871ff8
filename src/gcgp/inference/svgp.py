"""Stochastic variational inference as in the paper: Adam on all parameters, in small batches of signals.

q is free: a mean and a Cholesky factor per latent function, whitened, as in Hensman et al. (2015) and GPflow.
The bound of a batch is an unbiased estimate of that of all signals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from gpytorch.variational import CholeskyVariationalDistribution
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.checkpoint import Checkpoint
from gcgp._runtime.history import History
from gcgp._runtime.memory import runs
from gcgp.domain import Signals
from gcgp.inference.cholesky import FactorizationError
from gcgp.inference.feature_dataset import FeatureDataset
from gcgp.inference.features import RUN_BYTES, Features
from gcgp.inference.likelihoods import Likelihood
from gcgp.inference.parameters import Parameters
from gcgp.inference.posterior import Posterior
from gcgp.inference.prior_variances import Sampling
from gcgp.inference.shapes import Latent, PerSignal, Rows, Scalar
from gcgp.inference.training_set import TrainingSet
from gcgp.inference.triangular import SpreadAndVolume, SquaredProducts

CHECKPOINT_KEY = "svgp"
BatchRun = tuple[Int[np.ndarray, "m"], Float[Tensor, "m M"], Float[Tensor, "m"]]
"""Rows of signals, their features and residuals."""


@dataclass(frozen=True)
class FreePosterior:
    """q of v/s, whose prior is standard normal, where f = φᵀv and s² is the variance of the GP."""

    distribution: CholeskyVariationalDistribution
    """Means `[C, M]` and lower Cholesky factors `[C, M, M]`."""
    log_variance: Scalar

    @classmethod
    def prior(
        cls, size: int, latents: int, log_variance: Scalar, dtype: torch.dtype = torch.float64
    ) -> FreePosterior:
        """The prior, where the paper starts."""
        shape = torch.Size([latents])
        return cls(CholeskyVariationalDistribution(size, shape, 0.0).to(dtype), log_variance)

    @property
    def means(self) -> Float[Tensor, "C M"]:
        """Means of v/s."""
        return self.distribution.variational_mean

    @property
    def factors(self) -> Float[Tensor, "C M M"]:
        """Lower Cholesky factors of the covariances of v/s; entries above their diagonals are ignored."""
        return self.distribution.chol_variational_covar

    def predict(self, features: Rows, residual: PerSignal) -> tuple[Latent, Latent]:
        """Mean and variance of f, in float64."""
        scale = (self.log_variance / 2).exp()
        factors = self.factors
        spread: Tensor = SquaredProducts.apply(features.to(factors.dtype), factors)
        mean = scale * features.double() @ self.means.double().T
        # Residuals may be estimates, which are unbiased only if negative ones are included.
        return mean, scale.square() * (spread.double() + residual[:, None]).clamp_min(0.0)

    def divergence(self) -> Scalar:
        """KL divergence from the prior, of all latent functions together."""
        covariances: Tensor = SpreadAndVolume.apply(self.factors)
        return 0.5 * (covariances + self.means.double().square().sum() - self.means.numel())

    def to_posterior(self) -> Posterior:
        """The same posterior in terms of its precisions, as predictions use it."""
        with torch.no_grad():
            factors = self.factors.double().tril()
            identity = torch.eye(self.means.shape[1], dtype=torch.float64)
            inverses = torch.linalg.solve_triangular(factors, identity.expand_as(factors), upper=False)
            roots = torch.linalg.cholesky(inverses.mT @ inverses).contiguous()
            variance = float(self.log_variance.exp())
            return Posterior(variance, math.sqrt(variance) * self.means.double().T.contiguous(), roots)


@dataclass(frozen=True)
class CachedFeatures:
    """Features of batches that were computed once, if nothing that they depend on is learned."""

    dataset: FeatureDataset

    def batch(self, rows: Int[np.ndarray, "n"]) -> Iterator[BatchRun]:
        """The batch in one run."""
        yield rows, *self.dataset.rows(rows)


@dataclass(frozen=True)
class RecomputedFeatures:
    """Features that are computed for each batch, differentiable in all that they depend on."""

    features: Features
    signals: Signals
    draws: int | None = None
    """Patches drawn for the prior variance of large signals."""
    seed: int = 0
    first: int = 0
    """Index of the first signal of this process."""

    def batch(self, rows: Int[np.ndarray, "n"]) -> Iterator[BatchRun]:
        """Runs of the batch; each has to be differentiated before the next is requested.

        After the last one, gradients pass through the factors of Kuu.
        """
        # Copies of the terms, because a term caches the factor of its Kuu.
        features = replace(self.features, terms=[replace(term) for term in self.features.terms])
        roots = features.roots()
        signals = self.signals[rows]
        for run in runs(features.bytes_per_signal(signals), min(features.memory, RUN_BYTES)):
            part, indices = signals[run], self.first + rows[run]
            charts = [term.convolution.make_chart(part) for term in features.terms]
            patches = features.patches(part, charts, int(indices[0]), grad=True)
            sampling = None if self.draws is None else Sampling(self.draws, self.seed, indices)
            chunk = features.of_patches(patches, run, sampling=sampling, roots=roots)
            yield rows[run], chunk.features, chunk.unexplained
        features.pull_roots(roots)


Source = CachedFeatures | RecomputedFeatures


@dataclass(frozen=True)
class StochasticBound:
    """The evidence lower bound of all signals, estimated from batches."""

    posterior: FreePosterior
    source: Source
    likelihood: Callable[[int], Likelihood]
    """The likelihood of a step; each call makes a new one, because each run is differentiated on its own."""
    data: TrainingSet | FeatureDataset
    log_prior: Callable[[], Tensor] = lambda: torch.zeros(())
    """Log density of the priors of what is learned beside q."""

    def estimate(self, indices: Int[np.ndarray, "n"], step: int = 0) -> float:
        """The share of this process in the bound estimated from some signals of all processes.

        Gradients are added to the `grad` of the leaves. The first process counts divergence and log prior.
        """
        scale, value = self.data.count / len(indices), 0.0
        for part, features, residual in self.source.batch(np.asarray(self.data.local(indices))):
            with torch.enable_grad():
                mean, variance = self.posterior.predict(features, residual)
                logs = self.likelihood(step).expected_log(mean, variance, self.data.observations[part])
                fit = scale * logs.sum()
            fit.backward()
            value += float(fit.detach())
        if self.data.processes.rank == 0:
            with torch.enable_grad():
                penalty = self.log_prior() - self.posterior.divergence()
            penalty.backward()
            value += float(penalty.detach())
        return value


def adam(
    bound: StochasticBound,
    parameters: Parameters,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: int = 0,
    history: History,
    checkpoint: Checkpoint | None = None,
    report: Callable[[int], None] = lambda steps: None,
) -> Float[np.ndarray, "k"]:
    """Maximize the bound over q and the parameters; their last value is set and returned.

    `report` gets the number of steps since its last call, the history the mean bound of each epoch. A resumed
    run continues as if it had never stopped. If Kuu has no Cholesky factor after a step, the step of the
    parameters is undone.
    """
    count, values = bound.data.count, list[float]()
    per_epoch = math.ceil(count / batch_size)
    x = torch.zeros(parameters.size, dtype=torch.float64, requires_grad=True)
    feasible = x.detach().clone()  # the last parameters at which all Kuu had a Cholesky factor
    leaves = [*bound.posterior.distribution.parameters(), x]
    optimizer = torch.optim.Adam(leaves, lr=learning_rate, maximize=True, fused=True)
    low, high = torch.tensor(parameters.bounds, dtype=torch.float64).reshape(-1, 2).T

    def estimate(indices: Int[np.ndarray, "n"]) -> Scalar:
        optimizer.zero_grad()
        parameters.set(x.detach().numpy())
        return torch.tensor(bound.estimate(indices, len(values)), dtype=torch.float64)

    def end_epoch(epoch: int) -> None:
        history.add(sum(values[epoch * per_epoch : (epoch + 1) * per_epoch]) / per_epoch / count)

    saved = checkpoint.load(CHECKPOINT_KEY) if checkpoint is not None else None
    if saved is not None:
        values, feasible = saved["values"].tolist(), saved["feasible"]
        _restore(optimizer, leaves, saved)
        report(len(values))
        for epoch in range(len(values) // per_epoch):
            end_epoch(epoch)
    order: Int[np.ndarray, "N"] | None = None
    while len(values) < epochs * per_epoch:
        epoch, position = divmod(len(values), per_epoch)
        if order is None or position == 0:
            order = np.random.default_rng([seed, epoch]).permutation(count)
        indices = order[position * batch_size : (position + 1) * batch_size]
        try:
            value = estimate(indices)
        except FactorizationError:
            if torch.equal(feasible, x):
                raise
            with torch.no_grad():
                x.copy_(feasible)
            value = estimate(indices)
        feasible = x.detach().clone()
        x.grad = torch.from_numpy(parameters.gradient(x.detach().numpy()))
        for leaf in leaves:
            leaf.grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        bound.data.processes.sum(value, *(leaf.grad for leaf in leaves if leaf.grad is not None))
        optimizer.step()
        with torch.no_grad():
            x.clamp_(low, high)
        values.append(float(value))
        report(1)
        if position == per_epoch - 1:
            end_epoch(epoch)
        if checkpoint is not None and checkpoint.due(CHECKPOINT_KEY):
            state = {"values": torch.tensor(values, dtype=torch.float64), "feasible": feasible}
            checkpoint.save(CHECKPOINT_KEY, state | _tensors(optimizer, leaves))
    parameters.set(x.detach().numpy())
    return x.detach().numpy().copy()


def _tensors(optimizer: torch.optim.Adam, leaves: Sequence[Tensor]) -> dict[str, Tensor]:
    """Leaves and moments by name, for a checkpoint."""
    state = {}
    for i, leaf in enumerate(leaves):
        state[f"leaf.{i}"] = leaf.detach().clone()
        state |= {f"moment.{i}.{name}": value.clone() for name, value in optimizer.state[leaf].items()}
    return state


def _restore(optimizer: torch.optim.Adam, leaves: Sequence[Tensor], state: dict[str, Tensor]) -> None:
    """Set leaves and moments to those of a checkpoint."""
    for i, leaf in enumerate(leaves):
        prefix = f"moment.{i}."
        moments = {key.removeprefix(prefix): t for key, t in state.items() if key.startswith(prefix)}
        optimizer.state[leaf] = {name: tensor.clone() for name, tensor in moments.items()}
        with torch.no_grad():
            leaf.copy_(state[f"leaf.{i}"])
