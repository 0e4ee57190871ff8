"""Variational inference on features: natural gradient steps for q(v), each as cheap as a closed form.

Every observation is stood for by a Gaussian site for each latent function. A natural gradient step of size ρ
moves each site by ρ towards the one that fits the likelihood under the present posterior (the dual form:
Khan & Lin 2017; Adam et al. 2021), and the posterior follows as in regression with the sites as data.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from gcgp.inference.checkpoint import Checkpoint
from gcgp.inference.likelihoods import Likelihood
from gcgp.inference.posterior import Posterior
from gcgp.inference.selection import Point, pattern_search

ROWS_AT_ONCE = 4096
MOST_STEPS = 20
TOLERANCE = 1e-4
"""Steps end when one gains less than this, in nats a signal."""
LEAST_STEP = 1 / 1024
"""A step that does not raise the bound is halved, down to this."""


@dataclass(frozen=True)
class Observed:
    """Signals by their features, and what was observed of them."""

    features: Float[Tensor, "N M"]
    residual: Float[Tensor, "N"]
    targets: Num[Tensor, "N"]

    @classmethod
    def room(cls, size: int, targets: Num[Tensor, "N"], dtype: torch.dtype, memory: int) -> Observed:
        """Room for features to be filled in; beyond `memory` bytes in a file without a name."""
        count = len(targets)
        if count * size * dtype.itemsize > memory:
            kind = np.dtype(str(dtype).removeprefix("torch."))
            with tempfile.TemporaryFile() as file:
                mapped = np.memmap(file, dtype=kind, mode="w+", shape=(count, size))
            features = torch.from_numpy(mapped)
        else:
            features = torch.zeros(count, size, dtype=dtype)
        return cls(features, torch.zeros(count, dtype=torch.float64), targets)

    def __len__(self) -> int:
        return len(self.targets)

    def runs(self) -> Iterator[slice]:
        """Slices of signals that are taken at once."""
        for start in range(0, len(self), ROWS_AT_ONCE):
            yield slice(start, min(len(self), start + ROWS_AT_ONCE))


@dataclass(frozen=True)
class Sites:
    """For each signal and latent function a factor exp(linear·f − precision·f²/2)."""

    linear: Float[Tensor, "N C"]
    precision: Float[Tensor, "N C"]

    def towards(self, other: Sites, step: float) -> Sites:
        """The sites a part of the way to others."""
        return Sites(
            torch.lerp(self.linear, other.linear, step), torch.lerp(self.precision, other.precision, step)
        )

    def posterior(self, observed: Observed, variance: float) -> Posterior | None:
        """The prior times all sites; None if that is no Gaussian, as negative precisions may have it."""
        size, classes = observed.features.shape[1], self.linear.shape[1]
        roots = torch.empty(classes, size, size, dtype=torch.float64)
        weights = torch.empty(size, classes, dtype=torch.float64)
        cross = torch.zeros(size, classes, dtype=torch.float64)
        for run in observed.runs():
            cross.addmm_(observed.features[run].double().T, self.linear[run])
        for c in range(classes):
            gram = torch.eye(size, dtype=torch.float64)
            for run in observed.runs():
                rows = observed.features[run].double()
                gram.addmm_((rows * (variance * self.precision[run, c, None])).T, rows)
            root, failed = torch.linalg.cholesky_ex(gram)
            if failed:
                return None
            roots[c] = root
            weights[:, c] = torch.cholesky_solve(variance * cross[:, c, None], root)[:, 0]
        return Posterior(variance, weights, roots)


@dataclass(frozen=True)
class Fit:
    """Sites, the posterior that they make, its evidence lower bound, and where the sites should move."""

    sites: Sites
    posterior: Posterior
    bound: float
    """Σ E log p(y | f) − KL(q ‖ prior)."""
    aim: Sites


def fit_of(sites: Sites, observed: Observed, likelihood: Likelihood, variance: float) -> Fit | None:
    """The fit that sites make; None if they make no Gaussian posterior."""
    posterior = sites.posterior(observed, variance)
    if posterior is None:
        return None
    total, linear, precision = 0.0, [], []
    for run in observed.runs():
        mean, spread = posterior.predict(observed.features[run].double(), observed.residual[run].double())
        values, slope, curvature = likelihood.sites(mean, spread, observed.targets[run])
        total += float(values.sum())
        linear.append(slope + curvature * mean)
        precision.append(curvature)
    aim = Sites(torch.cat(linear), torch.cat(precision))
    bound = total - float(posterior.divergence())
    return Fit(sites, posterior, bound, aim) if np.isfinite(bound) else None


def natural_steps(
    fit: Fit,
    observed: Observed,
    likelihood: Likelihood,
    *,
    max_iter: int = MOST_STEPS,
    tolerance: float = TOLERANCE,
    step: float = 1.0,
    tell: Callable[[Fit, float], None] = lambda fit, step: None,
) -> Fit:
    """Climb the bound from a fit by natural gradient steps, none of which lowers it.

    It ends after a step that gains less than `tolerance` nats a signal, or when no step gains any more.
    `tell` hears of each new fit, and of the size of the step that is tried next.
    """
    for _ in range(max_iter):
        moved, first = None, step
        while step >= LEAST_STEP:
            sites = fit.sites.towards(fit.aim, step)
            moved = fit_of(sites, observed, likelihood, float(fit.posterior.variance))
            if moved is not None and moved.bound >= fit.bound:
                break
            step, moved = step / 2, None
        if moved is None:
            break
        enough = moved.bound - fit.bound < tolerance * len(observed) * step
        fit, step = moved, min(1.0, 2 * step) if step == first else step
        tell(fit, step)
        if enough:
            break
    return fit


@dataclass(frozen=True)
class Score:
    """What is asked of a GP variance: leave-one-out likelihood of some signals, or the bound of all."""

    observed: Observed
    likelihood: Likelihood
    rows: Int[Tensor, "n"] | None
    """The signals that are left out in turn; None: the bound."""

    def __call__(self, fit: Fit) -> float:
        """Nats a signal, the more the better.

        Leaving a signal out means leaving its site out; the other sites stay as they are.
        """
        if self.rows is None:
            return fit.bound / len(self.observed)
        total = 0.0
        for rows in torch.split(self.rows, ROWS_AT_ONCE):
            mean, variance = fit.posterior.leave_one_out(
                self.observed.features[rows].double(),
                self.observed.residual[rows].double(),
                fit.sites.linear[rows],
                fit.sites.precision[rows],
            )
            total += float(self.likelihood.predictive_log(mean, variance, self.observed.targets[rows]).sum())
        return total / len(self.rows)


def settle(
    sites: Sites,
    observed: Observed,
    at: Callable[[Point], tuple[Likelihood, float] | None],
    score: Score,
    start: Point,
    steps: Sequence[Point],
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

    def loss(point: Point) -> float:
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
    observed: Observed,
    likelihood: Likelihood,
    variance: float,
    tell: Callable[[float], None],
    checkpoint: Checkpoint | None,
    stage: str,
) -> Fit | None:
    """Natural steps from the sites, or from where a run that was killed had come to."""
    state = (checkpoint.load(stage) if checkpoint is not None else None) or {
        "linear": sites.linear,
        "precision": sites.precision,
        "step": torch.tensor(1.0, dtype=torch.float64),
        "bounds": torch.zeros(0, dtype=torch.float64),
        "done": torch.tensor(False),
    }
    for bound in state["bounds"].tolist():
        tell(bound)
    fit = fit_of(Sites(state["linear"], state["precision"]), observed, likelihood, variance)
    if fit is None or state["done"]:
        return fit
    bounds = state["bounds"].tolist()

    def keep(fit: Fit, step: float, done: bool = False) -> None:
        if checkpoint is not None:
            numbers = {
                "step": torch.tensor(step, dtype=torch.float64),
                "bounds": torch.tensor(bounds, dtype=torch.float64),
                "done": torch.tensor(done),
            }
            checkpoint.save(stage, {"linear": fit.sites.linear, "precision": fit.sites.precision, **numbers})

    def note(fit: Fit, step: float) -> None:
        bounds.append(fit.bound / len(observed))
        tell(bounds[-1])
        keep(fit, step)

    left = MOST_STEPS - len(bounds)
    fit = natural_steps(fit, observed, likelihood, max_iter=left, step=float(state["step"]), tell=note)
    keep(fit, 1.0, done=True)
    return fit
