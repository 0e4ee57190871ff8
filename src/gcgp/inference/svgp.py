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
from jaxtyping import Float, Int, Num
from torch import Tensor

from gcgp._runtime.checkpoint import Checkpoint
from gcgp._runtime.history import History
from gcgp._runtime.memory import runs
from gcgp._runtime.processes import SINGLE_PROCESS, ProcessGroup
from gcgp.domain import Signals
from gcgp.inference.cholesky import FactorizationError
from gcgp.inference.feature_dataset import FeatureDataset
from gcgp.inference.features import RUN_BYTES, Features
from gcgp.inference.likelihoods import Likelihood
from gcgp.inference.parameters import Parameters
from gcgp.inference.posterior import Posterior
from gcgp.inference.prior_variances import Sampling
from gcgp.inference.triangular import SpreadAndVolume, SquaredProducts

CHECKPOINT_KEY = "svgp"
BatchRun = tuple[Int[np.ndarray, "m"], Float[Tensor, "m M"], Float[Tensor, "m"]]
"""Rows of signals, their features and residuals."""


@dataclass(frozen=True)
class FreePosterior:
    """q of v/s, whose prior is standard normal, where f = φᵀv and s² is the variance of the GP."""

    distribution: CholeskyVariationalDistribution
    """Means `[C, M]` and lower Cholesky factors `[C, M, M]`."""
    log_variance: Float[Tensor, ""]

    @classmethod
    def prior(
        cls, size: int, latents: int, log_variance: Float[Tensor, ""], dtype: torch.dtype = torch.float64
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

    def predict(
        self, features: Float[Tensor, "n M"], residual: Float[Tensor, "n"]
    ) -> tuple[Float[Tensor, "n C"], Float[Tensor, "n C"]]:
        """Mean and variance of f, in float64."""
        scale = (self.log_variance / 2).exp()
        factors = self.factors
        spread: Tensor = SquaredProducts.apply(features.to(factors.dtype), factors)
        mean = scale * features.double() @ self.means.double().T
        # Residuals may be estimates, which are unbiased only if negative ones are included.
        return mean, scale.square() * (spread.double() + residual[:, None]).clamp_min(0.0)

    def divergence(self) -> Float[Tensor, ""]:
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
    targets: Num[Tensor, "N"]
    log_prior: Callable[[], Tensor] = lambda: torch.zeros(())
    """Log density of the priors of what is learned beside q."""
    processes: ProcessGroup = SINGLE_PROCESS
    first: int = 0
    """Index of the first signal of this process."""
    total: int | None = None
    """Number of signals of all processes; None: as many as there are here."""

    @property
    def count(self) -> int:
        """Number of signals of all processes."""
        return len(self.targets) if self.total is None else self.total

    def estimate(self, indices: Int[np.ndarray, "n"], step: int = 0) -> float:
        """The share of this process in the bound estimated from some signals of all processes.

        Gradients are added to the `grad` of the leaves. The first process counts divergence and log prior.
        """
        rows = indices[(indices >= self.first) & (indices < self.first + len(self.targets))] - self.first
        scale, value = self.count / len(indices), 0.0
        for part, features, residual in self.source.batch(rows):
            with torch.enable_grad():
                mean, variance = self.posterior.predict(features, residual)
                logs = self.likelihood(step).expected_log(mean, variance, self.targets[part])
                fit = scale * logs.sum()
            fit.backward()
            value += float(fit.detach())
        if self.processes.rank == 0:
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
    report: Callable[[int], None] = lambda step: None,
) -> Float[np.ndarray, "k"]:
    """Maximize the bound over q and the parameters; their last value is set and returned.

    The history gets the mean bound of each epoch. A resumed run continues as if it had never stopped. If Kuu
    has no Cholesky factor after a step, the step of the parameters is undone.
    """
    count, processes = bound.count, bound.processes
    x = torch.zeros(parameters.size, dtype=torch.float64, requires_grad=True)
    leaves = [*bound.posterior.distribution.parameters(), x]
    optimizer = torch.optim.Adam(leaves, lr=learning_rate, maximize=True, fused=True)
    low, high = torch.tensor(parameters.bounds, dtype=torch.float64).reshape(-1, 2).T
    per_epoch = math.ceil(count / batch_size)
    state = _Progress.start(x)
    saved = checkpoint.load(CHECKPOINT_KEY) if checkpoint is not None else None
    if saved is not None:
        state = _Progress.restore(saved, optimizer, leaves)
        for mean in state.means:
            history.add(mean)

    def estimate(indices: Int[np.ndarray, "n"]) -> Float[Tensor, ""]:
        optimizer.zero_grad()
        parameters.set(x.detach().numpy())
        return torch.tensor(bound.estimate(indices, state.step), dtype=torch.float64)

    order: Int[np.ndarray, "N"] | None = None
    while state.step < epochs * per_epoch:
        epoch, position = divmod(state.step, per_epoch)
        if order is None or position == 0:
            order = np.random.default_rng([seed, epoch]).permutation(count)
        indices = order[position * batch_size : (position + 1) * batch_size]
        try:
            value = estimate(indices)
        except FactorizationError:
            if torch.equal(state.feasible, x):
                raise
            with torch.no_grad():
                x.copy_(state.feasible)
            value = estimate(indices)
        state.feasible = x.detach().clone()
        x.grad = torch.from_numpy(parameters.gradient(x.detach().numpy()))
        for leaf in leaves:
            leaf.grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        processes.sum(value, *(leaf.grad for leaf in leaves if leaf.grad is not None))
        optimizer.step()
        with torch.no_grad():
            x.clamp_(low, high)
        state.step, state.sum = state.step + 1, state.sum + float(value)
        report(state.step)
        if state.step % per_epoch == 0:
            state.means.append(state.sum / per_epoch / count)
            history.add(state.means[-1])
            state.sum = 0.0
        if checkpoint is not None and checkpoint.due(CHECKPOINT_KEY):
            checkpoint.save(CHECKPOINT_KEY, state.tensors(optimizer, leaves))
    parameters.set(x.detach().numpy())
    return x.detach().numpy().copy()


@dataclass
class _Progress:
    """What a run of Adam has reached, beside the leaves and the state of the optimizer."""

    step: int
    sum: float
    """Sum of the bounds in the present epoch."""
    means: list[float]
    """Mean bound of each finished epoch, in nats per signal."""
    feasible: Float[Tensor, "k"]
    """The last parameters at which all Kuu had a Cholesky factor."""

    @classmethod
    def start(cls, x: Float[Tensor, "k"]) -> _Progress:
        return cls(0, 0.0, [], x.detach().clone())

    def tensors(self, optimizer: torch.optim.Adam, leaves: Sequence[Tensor]) -> dict[str, Tensor]:
        """All of it, for a checkpoint."""
        values = {"step": self.step, "sum": self.sum, "means": self.means}
        state = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
        state["feasible"] = self.feasible
        for i, leaf in enumerate(leaves):
            state[f"leaf.{i}"] = leaf.detach().clone()
            state |= {f"moment.{i}.{name}": value.clone() for name, value in optimizer.state[leaf].items()}
        return state

    @classmethod
    def restore(
        cls, state: dict[str, Tensor], optimizer: torch.optim.Adam, leaves: Sequence[Tensor]
    ) -> _Progress:
        """The progress in a checkpoint; leaves and optimizer are set to it."""
        for i, leaf in enumerate(leaves):
            with torch.no_grad():
                leaf.copy_(state[f"leaf.{i}"])
            prefix = f"moment.{i}."
            optimizer.state[leaf] = {
                key.removeprefix(prefix): value.clone()
                for key, value in state.items()
                if key.startswith(prefix)
            }
        return cls(int(state["step"]), float(state["sum"]), state["means"].tolist(), state["feasible"])
