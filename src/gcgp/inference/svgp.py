"""Stochastic variational inference as in the paper: Adam on everything, in small batches of signals.

q is free: a mean and a Cholesky factor for each latent function, whitened, as in Hensman et al. (2015) and
GPflow. A batch's bound is unbiased for that of all signals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from gpytorch.variational import CholeskyVariationalDistribution
from jaxtyping import Float, Int, Num
from torch import Tensor

from gcgp._runtime.checkpoint import Checkpoint
from gcgp._runtime.processes import SINGLE_PROCESS, ProcessGroup
from gcgp.domain import Signals
from gcgp.inference.cholesky import FactorizationError
from gcgp.inference.features import RUN_BYTES, Features
from gcgp.inference.likelihoods import Likelihood
from gcgp.inference.natural_gradient import FeatureDataset
from gcgp.inference.parameters import Parameters
from gcgp.inference.posterior import Posterior
from gcgp.inference.triangular import SpreadAndVolume, SquaredProducts
from gcgp.patches.convolution import runs
from gcgp.selection.optimizer import History

PAPER_BATCH = 200
PAPER_LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class FreePosterior:
    """q of v/s, whose prior is standard normal, where f = φᵀv and s² is the GP's variance."""

    distribution: CholeskyVariationalDistribution
    """Means `[C, M]` and lower Cholesky factors `[C, M, M]`."""
    log_variance: Float[Tensor, ""]

    @classmethod
    def prior(
        cls, size: int, latents: int, log_variance: Float[Tensor, ""], dtype: torch.dtype = torch.float64
    ) -> FreePosterior:
        """The prior itself, where the paper starts."""
        shape = torch.Size([latents])
        return cls(CholeskyVariationalDistribution(size, shape, 0.0).to(dtype), log_variance)

    @property
    def means(self) -> Float[Tensor, "C M"]:
        """Of v/s."""
        return self.distribution.variational_mean

    @property
    def factors(self) -> Float[Tensor, "C M M"]:
        """Lower Cholesky factors of the covariances of v/s; above their diagonals anything may stand."""
        return self.distribution.chol_variational_covar

    def predict(
        self, features: Float[Tensor, "n M"], residual: Float[Tensor, "n"]
    ) -> tuple[Float[Tensor, "n C"], Float[Tensor, "n C"]]:
        """Mean and variance of f, in float64."""
        scale = (self.log_variance / 2).exp()
        factors = self.factors
        spread: Tensor = SquaredProducts.apply(features.to(factors.dtype), factors)
        mean = scale * features.double() @ self.means.double().T
        # Residuals may be estimates, which are right on average only if negative ones count too.
        return mean, scale.square() * (spread.double() + residual[:, None]).clamp_min(0.0)

    def divergence(self) -> Float[Tensor, ""]:
        """KL divergence from the prior, of all latent functions together."""
        covariances: Tensor = SpreadAndVolume.apply(self.factors)
        return 0.5 * (covariances + self.means.double().square().sum() - self.means.numel())

    def settled(self) -> Posterior:
        """The same posterior by its precisions, as predictions use it."""
        with torch.no_grad():
            factors = self.factors.double().tril()
            identity = torch.eye(self.means.shape[1], dtype=torch.float64)
            inverses = torch.linalg.solve_triangular(factors, identity.expand_as(factors), upper=False)
            roots = torch.linalg.cholesky(inverses.mT @ inverses).contiguous()
            variance = float(self.log_variance.exp())
            return Posterior(variance, math.sqrt(variance) * self.means.double().T.contiguous(), roots)


@runtime_checkable
class Source(Protocol):
    """Where the features of batches come from."""

    def batch(
        self, rows: Int[np.ndarray, "n"]
    ) -> Iterator[tuple[Int[np.ndarray, "m"], Float[Tensor, "m M"], Float[Tensor, "m"]]]:
        """Runs of the batch: their signals, features and residuals."""
        ...

    def pull(self) -> None:
        """Take gradients further, once the whole batch has been differentiated."""
        ...


@dataclass(frozen=True)
class CachedFeatures:
    """Features that were made once, for when nothing that they depend on is learned."""

    observed: FeatureDataset

    def batch(
        self, rows: Int[np.ndarray, "n"]
    ) -> Iterator[tuple[Int[np.ndarray, "m"], Float[Tensor, "m M"], Float[Tensor, "m"]]]:
        """See `Source`."""
        yield rows, self.observed.features[rows].double(), self.observed.residual[rows].double()

    def pull(self) -> None:
        """Nothing to do."""


@dataclass
class RecomputedFeatures:
    """Features that are made for each batch again, differentiable in all that they are made of."""

    features: Features
    signals: Signals
    draws: int | None = None
    """Patches drawn for the prior variance of large signals."""
    seed: int = 0
    first: int = 0
    """Number of the first signal, where several processes have some each."""
    _present: Features | None = None
    _roots: Sequence[Tensor] = ()

    def batch(
        self, rows: Int[np.ndarray, "n"]
    ) -> Iterator[tuple[Int[np.ndarray, "m"], Float[Tensor, "m M"], Float[Tensor, "m"]]]:
        """See `Source`."""
        # New terms, because a term keeps the factor of its Kuu.
        self._present = replace(self.features, terms=[replace(term) for term in self.features.terms])
        self._roots = self._present.roots()
        signals = self.signals[rows]
        cost = self.features.bytes_per_signal(signals)
        for run in runs(cost, min(self.features.memory, RUN_BYTES)):
            part = signals[run]
            charts = [term.convolution.make_chart(part) for term in self._present.terms]
            chunk = self._present.traced(
                part,
                run,
                self._roots,
                charts,
                draws=self.draws,
                seed=self.seed,
                numbers=self.first + rows[run],
            )
            yield rows[run], chunk.features, chunk.unexplained

    def pull(self) -> None:
        """Through the factors of Kuu."""
        assert self._present is not None
        self._present.pull_roots(self._roots)


def batch_bound(
    posterior: FreePosterior,
    source: Source,
    likelihood: Callable[[], Likelihood],
    targets: Num[Tensor, "N"],
    rows: Int[np.ndarray, "n"],
    scale: float | None = None,
    divergence: bool = True,
    log_prior: Callable[[], Tensor] = lambda: torch.zeros(()),
) -> float:
    """The bound of all N signals, estimated from some; its gradients are added to the leaves' `grad`.

    `likelihood` makes one for each run of the batch, because each run is differentiated by itself. Where
    several processes have parts of the batch, `scale` says how many signals each stands for, and one of them
    counts the divergence and the log prior of what is learned beside q.
    """
    scale, total = len(targets) / len(rows) if scale is None else scale, 0.0
    for part, features, residual in source.batch(rows):
        with torch.enable_grad():
            mean, variance = posterior.predict(features, residual)
            value = scale * likelihood().expected_log(mean, variance, targets[part]).sum()
        value.backward()
        total += float(value.detach())
    source.pull()
    if divergence:
        with torch.enable_grad():
            penalty = log_prior() - posterior.divergence()
        penalty.backward()
        total += float(penalty.detach())
    return total


def adam(
    posterior: FreePosterior,
    source: Source,
    likelihood: Callable[[int], Likelihood],
    targets: Num[Tensor, "N"],
    parameters: Parameters,
    *,
    epochs: int,
    batch: int = PAPER_BATCH,
    learning_rate: float = PAPER_LEARNING_RATE,
    seed: int = 0,
    history: History,
    checkpoint: Checkpoint | None = None,
    tell: Callable[[int], None] = lambda step: None,
    processes: ProcessGroup = SINGLE_PROCESS,
    first: int = 0,
    count: int | None = None,
    log_prior: Callable[[], Tensor] = lambda: torch.zeros(()),
) -> Float[np.ndarray, "k"]:
    """Adam on q and on the parameters, which end at what is returned; the last state is kept, as usual.

    `likelihood` makes that of a step, with random draws of its own. The history has the mean bound of each
    pass through the signals. A run that is resumed from its checkpoint goes on as if it had never stopped.
    Where several processes have some of the `count` signals each, `first` is the number of the first one.
    A step after which Kuu has no factor is taken back.
    """
    count = len(targets) if count is None else count
    x = torch.zeros(parameters.size, dtype=torch.float64, requires_grad=True)
    leaves = [*posterior.distribution.parameters(), x]
    optimizer = torch.optim.Adam(leaves, lr=learning_rate, maximize=True, fused=True)
    low, high = torch.tensor(parameters.bounds, dtype=torch.float64).reshape(-1, 2).T
    per_epoch = math.ceil(count / batch)
    step, sums = 0, 0.0
    factored = x.detach().clone()
    means: list[float] = []
    found = checkpoint.load("adam") if checkpoint is not None else None
    if found is not None:
        step, sums = int(found["step"]), float(found["sums"])
        _restore(optimizer, leaves, found)
        for mean in found["means"].tolist():
            means.append(mean)
            history.add(mean)
    order = _order(count, seed, step // per_epoch)
    while step < epochs * per_epoch:
        at = step % per_epoch
        if at == 0:
            order = _order(count, seed, step // per_epoch)
        rows = order[at * batch : (at + 1) * batch]
        optimizer.zero_grad()
        parameters.set(x.detach().numpy())
        mine = rows[(rows >= first) & (rows < first + len(targets))] - first

        def bound(
            mine: Int[np.ndarray, "m"] = mine, scale: float = count / len(rows), step: int = step
        ) -> float:
            return batch_bound(
                posterior,
                source,
                partial(likelihood, step),
                targets,
                mine,
                scale,
                divergence=processes.rank == 0,
                log_prior=log_prior,
            )

        try:
            value = torch.tensor(bound(), dtype=torch.float64)
        except FactorizationError:
            if torch.equal(factored, x):
                raise
            with torch.no_grad():
                x.copy_(factored)
            optimizer.zero_grad()
            parameters.set(x.detach().numpy())
            value = torch.tensor(bound(), dtype=torch.float64)
        factored = x.detach().clone()
        x.grad = torch.from_numpy(parameters.gradient(x.detach().numpy()))
        processes.sum(value, *(_gradient(leaf) for leaf in leaves))
        optimizer.step()
        with torch.no_grad():
            x.clamp_(low, high)
        step, sums = step + 1, sums + float(value)
        tell(step)
        if step % per_epoch == 0:
            means.append(sums / per_epoch / count)
            history.add(means[-1])
            sums = 0.0
        if checkpoint is not None and checkpoint.due("adam"):
            checkpoint.save("adam", _state(optimizer, leaves, step, sums, means))
    parameters.set(x.detach().numpy())
    return x.detach().numpy().copy()


def _gradient(leaf: Tensor) -> Tensor:
    if leaf.grad is None:
        leaf.grad = torch.zeros_like(leaf)
    return leaf.grad


def _order(count: int, seed: int, epoch: int) -> Int[np.ndarray, "N"]:
    return np.random.default_rng([seed, epoch]).permutation(count)


def _state(
    optimizer: torch.optim.Adam, leaves: Sequence[Tensor], step: int, sums: float, means: list[float]
) -> dict[str, Tensor]:
    numbers = {"step": step, "sums": sums, "means": means}
    state = {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}
    for i, leaf in enumerate(leaves):
        state[f"leaf.{i}"] = leaf.detach().clone()
        state |= {f"moment.{i}.{name}": value.clone() for name, value in optimizer.state[leaf].items()}
    return state


def _restore(optimizer: torch.optim.Adam, leaves: Sequence[Tensor], state: dict[str, Tensor]) -> None:
    for i, leaf in enumerate(leaves):
        with torch.no_grad():
            leaf.copy_(state[f"leaf.{i}"])
        start = f"moment.{i}."
        optimizer.state[leaf] = {
            key.removeprefix(start): value.clone() for key, value in state.items() if key.startswith(start)
        }
