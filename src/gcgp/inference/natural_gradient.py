"""Variational inference on features: natural gradient steps for q(v), each as cheap as a closed form.

Every observation is stood for by a Gaussian site for each latent function. A natural gradient step of size ρ
moves each site by ρ towards the one that fits the likelihood under the present posterior (the dual form:
Khan & Lin 2017; Adam et al. 2021), and the posterior follows as in regression with the sites as data.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from gcgp._runtime.checkpoint import Checkpoint
from gcgp._runtime.processes import SINGLE_PROCESS, ProcessGroup
from gcgp.inference.features import Chunk
from gcgp.inference.likelihoods import Likelihood
from gcgp.inference.posterior import Posterior
from gcgp.inference.search import SearchPoint, pattern_search
from gcgp.inference.statistics import gram

ROWS_AT_ONCE = 4096
MOST_STEPS = 20
TOLERANCE = 1e-4
"""Steps end when one gains less than this, in nats a signal."""
MEMORY = 5
"""Steps that an accelerated one looks back at, with the present one."""
LEAST_STEP = 1 / 1024
"""A step that does not raise the bound is halved, down to this."""


@dataclass(frozen=True)
class FeatureDataset:
    """Signals by their features, and what was observed of them."""

    features: Float[Tensor, "N M"]
    residual: Float[Tensor, "N"]
    targets: Num[Tensor, "N"]
    processes: ProcessGroup = SINGLE_PROCESS
    first: int = 0
    """Number of the first signal, where several processes have some each."""

    @classmethod
    def room(
        cls,
        size: int,
        targets: Num[Tensor, "N"],
        dtype: torch.dtype,
        memory: int,
        processes: ProcessGroup = SINGLE_PROCESS,
        first: int = 0,
    ) -> FeatureDataset:
        """Room for features to be filled in; beyond `memory` bytes in a file without a name."""
        count = len(targets)
        if count * size * dtype.itemsize > memory:
            kind = np.dtype(str(dtype).removeprefix("torch."))
            with tempfile.TemporaryFile() as file:
                mapped = np.memmap(file, dtype=kind, mode="w+", shape=(count, size))
            features = torch.from_numpy(mapped)
        else:
            features = torch.zeros(count, size, dtype=dtype)
        return cls(features, torch.zeros(count, dtype=torch.float64), targets, processes, first)

    def fill(self, chunk: Chunk) -> None:
        """Put the features of a run of signals in their place."""
        self.features[chunk.run], self.residual[chunk.run] = chunk.features, chunk.unexplained

    def __len__(self) -> int:
        return len(self.targets)

    @cached_property
    def count(self) -> int:
        """Signals of all processes."""
        return int(self.total(torch.tensor(float(len(self)), dtype=torch.float64)))

    def total(self, tensor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The sum over all processes, in place."""
        self.processes.sum(tensor)
        return tensor

    def own(self, numbers: Int[Tensor, "n"]) -> Int[Tensor, "m"]:
        """The places here of those signals, of all processes, that are here."""
        return numbers[(numbers >= self.first) & (numbers < self.first + len(self))] - self.first

    def runs(self) -> Iterator[slice]:
        """Slices of signals that are taken at once."""
        for start in range(0, len(self), ROWS_AT_ONCE):
            yield slice(start, min(len(self), start + ROWS_AT_ONCE))


@dataclass(frozen=True)
class Sites:
    """For each signal and latent function a factor exp(linear·f − precision·f²/2)."""

    linear: Float[Tensor, "N C"]
    precision: Float[Tensor, "N C"]

    def stacked(self) -> Float[Tensor, "2 N C"]:
        """Linear parts and precisions in one tensor."""
        return torch.stack([self.linear, self.precision])

    def posterior(self, observed: FeatureDataset, variance: float) -> Posterior | None:
        """The prior times all sites; None if that is no Gaussian, as negative precisions may have it."""
        size, classes = observed.features.shape[1], self.linear.shape[1]
        roots = torch.empty(classes, size, size, dtype=torch.float64)
        weights = torch.empty(size, classes, dtype=torch.float64)
        cross = torch.zeros(size, classes, dtype=torch.float64)
        for run in observed.runs():
            cross.addmm_(observed.features[run].double().T, self.linear[run])
        observed.total(cross)
        for c in range(classes):
            precision = torch.zeros(size, size, dtype=torch.float64)
            for run in observed.runs():
                rows = observed.features[run].double()
                precision += _weighted_gram(rows, variance * self.precision[run, c])
            observed.total(precision).diagonal().add_(1.0)
            root, failed = torch.linalg.cholesky_ex(precision)
            if failed:
                return None
            roots[c] = root
            weights[:, c] = torch.cholesky_solve(variance * cross[:, c, None], root)[:, 0]
        return Posterior(variance, weights, roots)


def _weighted_gram(rows: Float[Tensor, "n M"], weights: Float[Tensor, "n"]) -> Float[Tensor, "M M"]:
    """Σ w φφᵀ."""
    if bool((weights >= 0).all()):
        return gram(rows * weights.sqrt()[:, None])
    return (rows * weights[:, None]).T @ rows


@dataclass(frozen=True)
class Fit:
    """Sites, the posterior that they make, its evidence lower bound, and where the sites should move."""

    sites: Sites
    posterior: Posterior
    bound: float
    """Σ E log p(y | f) − KL(q ‖ prior)."""
    aim: Sites


def fit_of(sites: Sites, observed: FeatureDataset, likelihood: Likelihood, variance: float) -> Fit | None:
    """The fit that sites make; None if they make no Gaussian posterior."""
    posterior = sites.posterior(observed, variance)
    if posterior is None:
        return None
    total, linear, precision = torch.zeros((), dtype=torch.float64), [], []
    for run in observed.runs():
        mean, spread = posterior.predict(observed.features[run].double(), observed.residual[run].double())
        values, slope, curvature = likelihood.sites(mean, spread, observed.targets[run])
        total += values.sum()
        linear.append(slope + curvature * mean)
        precision.append(curvature)
    aim = Sites(torch.cat(linear), torch.cat(precision))
    bound = float(observed.total(total)) - float(posterior.divergence())
    return Fit(sites, posterior, bound, aim) if np.isfinite(bound) else None


@dataclass
class NaturalGradientAscent:
    """Natural gradient steps up the bound, none of which lowers it, accelerated (Anderson 1965).

    Steps are first tried as the last ones suggest, as if all moved by one linear map; where that does not
    raise the bound, plainly, and ever smaller.
    """

    fit: Fit
    observed: FeatureDataset
    likelihood: Likelihood
    step: float = 1.0
    past: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """The sites of the last steps, and how far each was from its aim."""

    def advance(self) -> float:
        """Take one step; returns by how much the bound has risen, 0 if nothing raises it any more."""
        here = self.fit.sites.stacked()
        away = self.fit.aim.stacked() - here
        self.past = [*self.past, (here, away)][-MEMORY:]
        moved = self._tried(self._suggested()) if len(self.past) > 1 else None
        first = self.step
        while moved is None and self.step >= LEAST_STEP:
            moved = self._tried(here + self.step * away)
            if moved is None:
                self.step /= 2
        if moved is None:
            return 0.0
        if self.step == first:
            self.step = min(1.0, 2 * self.step)
        gain, self.fit = moved.bound - self.fit.bound, moved
        return gain

    def _suggested(self) -> Tensor:
        """Where the map that the last steps saw would have its fixed point."""
        here, away = self.past[-1]
        steps = torch.stack([here - x for x, _ in self.past[:-1]])
        turns = torch.stack([away - r for _, r in self.past[:-1]])
        # Linear parts and precisions are of different size: each counts by its own.
        size = self.observed.total(away.square().sum(dim=(1, 2), keepdim=True)).sqrt().clamp_min(1e-300)
        columns = torch.cat([(turns / size).flatten(1), (away / size).flatten()[None]]).T
        # Least squares over the signals of all processes: their triangular factors say as much as they do.
        factors = self.observed.processes.concatenate(torch.linalg.qr(columns, mode="r").R)
        weights = torch.linalg.lstsq(factors[:, :-1], factors[:, -1:], driver="gelsd").solution
        return here + away - torch.tensordot(weights[:, 0], steps + turns, dims=1)

    def _tried(self, point: Tensor) -> Fit | None:
        """The fit of the sites at a point, if it has a larger bound."""
        negative = self.observed.total((self.fit.aim.precision < 0).double().sum())
        if float(negative) == 0:
            point[1].clamp_min_(0.0)
        sites = Sites(point[0], point[1])
        moved = fit_of(sites, self.observed, self.likelihood, float(self.fit.posterior.variance))
        return moved if moved is not None and moved.bound > self.fit.bound else None


def natural_steps(
    fit: Fit,
    observed: FeatureDataset,
    likelihood: Likelihood,
    *,
    max_iter: int = MOST_STEPS,
    tolerance: float = TOLERANCE,
    tell: Callable[[Fit], None] = lambda fit: None,
) -> Fit:
    """Maximize the bound from a fit, until a step gains less than `tolerance` nats a signal."""
    maximize = NaturalGradientAscent(fit, observed, likelihood)
    for _ in range(max_iter):
        gain = maximize.advance()
        if gain:
            tell(maximize.fit)
        if gain < tolerance * observed.count:
            break
    return maximize.fit


@dataclass(frozen=True)
class Score:
    """What is asked of a GP variance: leave-one-out likelihood of some signals, or the bound of all."""

    observed: FeatureDataset
    likelihood: Likelihood
    rows: Int[Tensor, "n"] | None
    """The signals that are left out in turn; None: the bound."""

    def __call__(self, fit: Fit) -> float:
        """Nats a signal, the more the better.

        Leaving a signal out means leaving its site out; the other sites stay as they are.
        """
        if self.rows is None:
            return fit.bound / self.observed.count
        total = torch.zeros((), dtype=torch.float64)
        for rows in torch.split(self.observed.own(self.rows), ROWS_AT_ONCE):
            mean, variance = fit.posterior.leave_one_out(
                self.observed.features[rows].double(),
                self.observed.residual[rows].double(),
                fit.sites.linear[rows],
                fit.sites.precision[rows],
            )
            total += self.likelihood.predictive_log(mean, variance, self.observed.targets[rows]).sum()
        return float(self.observed.total(total)) / len(self.rows)


def search_and_fit(
    sites: Sites,
    observed: FeatureDataset,
    at: Callable[[SearchPoint], tuple[Likelihood, float] | None],
    score: Score,
    start: SearchPoint,
    steps: Sequence[SearchPoint],
    *,
    tell: Callable[[float], None] = lambda bound: None,
    checkpoint: Checkpoint | None = None,
) -> Fit:
    """Natural gradient steps from the given sites, for the likelihood and GP variance that score best.

    `at` gives these for a point of the search, or None where there are none; without steps there is but the
    start. `tell` hears of the bound after each natural step, in nats a signal. The checkpoint keeps the sites
    of every point that was looked at.
    """
    best: tuple[float, Fit] | None = None

    def loss(point: SearchPoint) -> float:
        nonlocal best
        model = at(point)
        if model is None:
            return float("inf")
        begin = best[1].sites if best is not None else sites
        stage = "natural " + " ".join(f"{x:g}" for x in point)
        fit = _resumed(begin, observed, *model, tell, checkpoint, stage)
        if fit is None:
            return float("inf")
        value = -score(fit) if steps else 0.0
        if best is None or value < best[0]:
            best = value, fit
        return value

    pattern_search(loss, start, steps, diagonals=False)
    if best is None:
        raise ValueError("variational inference found no Gaussian posterior to start from")
    return best[1]


def _resumed(
    sites: Sites,
    observed: FeatureDataset,
    likelihood: Likelihood,
    variance: float,
    tell: Callable[[float], None],
    checkpoint: Checkpoint | None,
    stage: str,
) -> Fit | None:
    """Natural steps from the sites, or from where a run that was killed had come to."""
    own = slice(observed.first, observed.first + len(observed))
    found = checkpoint.load(stage) if checkpoint is not None else None
    if found is not None:  # the file is of the signals of all processes
        found = found | {"sites": found["sites"][:, own], "past": found["past"][:, :, :, own]}
    state = found or {
        "sites": sites.stacked(),
        "past": torch.zeros(0, 2, *sites.stacked().shape, dtype=torch.float64),
        "step": torch.tensor(1.0, dtype=torch.float64),
        "bounds": torch.zeros(0, dtype=torch.float64),
        "done": torch.tensor(False),
    }
    bounds = state["bounds"].tolist()
    for bound in bounds:
        tell(bound)
    fit = fit_of(Sites(state["sites"][0], state["sites"][1]), observed, likelihood, variance)
    if fit is None or state["done"]:
        return fit
    maximize = NaturalGradientAscent(
        fit, observed, likelihood, float(state["step"]), [(x, r) for x, r in state["past"]]
    )
    done = False
    while not done:
        gain = maximize.advance()
        done = gain < TOLERANCE * observed.count or len(bounds) + 1 >= MOST_STEPS
        if gain:
            bounds.append(maximize.fit.bound / observed.count)
            tell(bounds[-1])
        if checkpoint is not None and (done or observed.processes.broadcast_flag(checkpoint.due(stage))):
            past = torch.stack([torch.stack(pair) for pair in maximize.past])[: 0 if done else MEMORY]
            state = {
                "sites": observed.processes.concatenate(maximize.fit.sites.stacked(), 1),
                "past": observed.processes.concatenate(past, 3),
                "step": torch.tensor(maximize.step, dtype=torch.float64),
                "bounds": torch.tensor(bounds, dtype=torch.float64),
                "done": torch.tensor(done),
            }
            checkpoint.save(stage, state)
    return maximize.fit
