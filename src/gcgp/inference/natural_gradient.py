"""Variational inference on features: natural gradient steps for q(v), each as cheap as a closed form.

Each observation is represented by a Gaussian site per latent function. A natural gradient step of size ρ
moves each site by ρ towards the one that fits the likelihood under the present posterior (the dual form: Khan
& Lin 2017; Adam et al. 2021); the posterior then follows as in regression with the sites as data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.checkpoint import Checkpoint
from gcgp.inference.feature_dataset import DATASET_ROWS, FeatureDataset
from gcgp.inference.likelihoods import ClosedFormLikelihood, Likelihood
from gcgp.inference.posterior import Posterior
from gcgp.inference.search import SearchPoint, pattern_search
from gcgp.inference.shapes import Matrix, PerSignal, Rows
from gcgp.inference.statistics import gram

MAX_NATURAL_STEPS = 20
MIN_GAIN_OF_STEP = 1e-4
"""Steps end when one gains less than this (nats per signal)."""
ANDERSON_MEMORY = 5
"""Steps that an accelerated step looks back at, including the present one."""
MIN_STEP_SIZE = 1 / 1024
"""A step that does not increase the bound is halved, down to this size."""


@dataclass(frozen=True)
class Sites:
    """For each signal and latent function a factor exp(linear·f − precision·f²/2)."""

    linear: Float[Tensor, "N C"]
    precision: Float[Tensor, "N C"]

    @classmethod
    def of_closed_form(cls, likelihood: ClosedFormLikelihood, dataset: FeatureDataset, latents: int) -> Sites:
        """The Gaussian targets of a closed form."""
        targets, noise = likelihood.site_targets(dataset.observations, latents)
        return cls(targets / noise, 1 / noise)

    def stacked(self) -> Float[Tensor, "2 N C"]:
        """Linear parts and precisions in one tensor."""
        return torch.stack([self.linear, self.precision])

    def posterior(self, dataset: FeatureDataset, variance: float) -> Posterior | None:
        """The prior times all sites; None if negative precisions make that improper."""
        size, latents = dataset.features.shape[1], self.linear.shape[1]
        roots = torch.empty(latents, size, size, dtype=torch.float64)
        weights = torch.empty(size, latents, dtype=torch.float64)
        cross = torch.zeros(size, latents, dtype=torch.float64)
        for run in dataset.runs():
            cross.addmm_(dataset.features[run].double().T, self.linear[run])
        dataset.reduce(cross)
        for c in range(latents):
            precision = torch.zeros(size, size, dtype=torch.float64)
            for run in dataset.runs():
                rows = dataset.features[run].double()
                precision += _weighted_gram(rows, variance * self.precision[run, c])
            dataset.reduce(precision).diagonal().add_(1.0)
            root, failed = torch.linalg.cholesky_ex(precision)
            if failed:
                return None
            roots[c] = root
            weights[:, c] = torch.cholesky_solve(variance * cross[:, c, None], root)[:, 0]
        return Posterior(variance, weights, roots)


def _weighted_gram(rows: Rows, weights: PerSignal) -> Matrix:
    """Σ w φφᵀ."""
    if bool((weights >= 0).all()):
        return gram(rows * weights.sqrt()[:, None])
    return (rows * weights[:, None]).T @ rows


@dataclass(frozen=True)
class Fit:
    """Sites with their posterior, its evidence lower bound, and the sites that a full step leads to."""

    sites: Sites
    posterior: Posterior
    bound: float
    """Σ E log p(y | f) − KL(q ‖ prior)."""
    aim: Sites


def fit_sites(sites: Sites, dataset: FeatureDataset, likelihood: Likelihood, variance: float) -> Fit | None:
    """The fit of the given sites; None if their posterior is improper or the bound is not finite."""
    posterior = sites.posterior(dataset, variance)
    if posterior is None:
        return None
    total, linear, precision = torch.zeros((), dtype=torch.float64), [], []
    for run in dataset.runs():
        mean, spread = posterior.predict(*dataset.rows(run))
        values, slope, curvature = likelihood.sites(mean, spread, dataset.observations[run])
        total += values.sum()
        linear.append(slope + curvature * mean)
        precision.append(curvature)
    aim = Sites(torch.cat(linear), torch.cat(precision))
    bound = float(dataset.reduce(total)) - float(posterior.divergence())
    return Fit(sites, posterior, bound, aim) if np.isfinite(bound) else None


@dataclass
class NaturalGradientAscent:
    """Natural gradient steps that never decrease the bound, with Anderson acceleration (Anderson 1965).

    A step first tries the fixed point of the linear map that fits the last steps; if that does not increase
    the bound, plain steps of decreasing size.
    """

    fit: Fit
    dataset: FeatureDataset
    likelihood: Likelihood
    step_size: float = 1.0
    past: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """The sites of the last steps, and their differences from the sites that they aimed at."""

    def advance(self) -> float:
        """Take one step and return the gain of the bound; 0 if no step increases it."""
        here = self.fit.sites.stacked()
        away = self.fit.aim.stacked() - here
        self.past = [*self.past, (here, away)][-ANDERSON_MEMORY:]
        moved = self._improved(self._accelerated()) if len(self.past) > 1 else None
        first_size = self.step_size
        while moved is None and self.step_size >= MIN_STEP_SIZE:
            moved = self._improved(here + self.step_size * away)
            if moved is None:
                self.step_size /= 2
        if moved is None:
            return 0.0
        if self.step_size == first_size:
            self.step_size = min(1.0, 2 * self.step_size)
        gain, self.fit = moved.bound - self.fit.bound, moved
        return gain

    def _accelerated(self) -> Tensor:
        """The fixed point of the linear map that fits the last steps."""
        here, away = self.past[-1]
        steps = torch.stack([here - x for x, _ in self.past[:-1]])
        changes = torch.stack([away - r for _, r in self.past[:-1]])
        # Linear parts and precisions differ in scale, so each is divided by its norm.
        norm = self.dataset.reduce(away.square().sum(dim=(1, 2), keepdim=True)).sqrt().clamp_min(1e-300)
        columns = torch.cat([(changes / norm).flatten(1), (away / norm).flatten()[None]]).T
        # Least squares over the signals of all processes, from the triangular factor of each process.
        factors = self.dataset.processes.concatenate(torch.linalg.qr(columns, mode="r").R)
        weights = torch.linalg.lstsq(factors[:, :-1], factors[:, -1:], driver="gelsd").solution
        return here + away - torch.tensordot(weights[:, 0], steps + changes, dims=1)

    def _improved(self, point: Tensor) -> Fit | None:
        """The fit of the sites at a point, if its bound is larger."""
        negative = self.dataset.reduce((self.fit.aim.precision < 0).double().sum())
        if float(negative) == 0:
            point[1].clamp_min_(0.0)
        sites = Sites(point[0], point[1])
        moved = fit_sites(sites, self.dataset, self.likelihood, float(self.fit.posterior.variance))
        return moved if moved is not None and moved.bound > self.fit.bound else None


def natural_steps(
    sites: Sites,
    dataset: FeatureDataset,
    likelihood: Likelihood,
    variance: float,
    *,
    max_iter: int = MAX_NATURAL_STEPS,
    tolerance: float = MIN_GAIN_OF_STEP,
    report: Callable[[float], None] = lambda bound: None,
    checkpoint: Checkpoint | None = None,
    checkpoint_key: str = "natural-gradient",
) -> Fit | None:
    """Maximize the bound from the given sites until a step gains less than `tolerance` nats per signal.

    None if the sites have no posterior. `report` gets the bound after each step, in nats per signal. A
    checkpoint resumes an interrupted run.
    """
    bounds, step_size, past, done = [], 1.0, [], False
    saved = checkpoint.load(checkpoint_key) if checkpoint is not None else None
    if saved is not None:  # with the signals of all processes
        local = slice(dataset.first, dataset.first + len(dataset))
        sites = Sites(*saved["sites"][:, local])
        past = [(x, r) for x, r in saved["past"][:, :, :, local]]
        bounds, step_size, done = saved["bounds"].tolist(), float(saved["step_size"]), bool(saved["done"])
    for bound in bounds:
        report(bound)
    fit = fit_sites(sites, dataset, likelihood, variance)
    if fit is None or done:
        return fit
    ascent = NaturalGradientAscent(fit, dataset, likelihood, step_size, past)
    while not done:
        gain = ascent.advance()
        done = gain < tolerance * dataset.count or len(bounds) + 1 >= max_iter
        if gain:
            bounds.append(ascent.fit.bound / dataset.count)
            report(bounds[-1])
        if checkpoint is not None and (
            done or dataset.processes.broadcast_flag(checkpoint.due(checkpoint_key))
        ):
            past_tensor = torch.stack([torch.stack(pair) for pair in ascent.past])
            state = {
                "sites": dataset.processes.concatenate(ascent.fit.sites.stacked(), 1),
                "past": dataset.processes.concatenate(past_tensor[: 0 if done else ANDERSON_MEMORY], 3),
                "step_size": torch.tensor(ascent.step_size, dtype=torch.float64),
                "bounds": torch.tensor(bounds, dtype=torch.float64),
                "done": torch.tensor(done),
            }
            checkpoint.save(checkpoint_key, state)
    return ascent.fit


def leave_one_out_score(
    fit: Fit, dataset: FeatureDataset, likelihood: Likelihood, scored: Int[Tensor, "n"]
) -> float:
    """Mean log predictive density of the signals with indices `scored`, each without its site."""
    total = torch.zeros((), dtype=torch.float64)
    for rows in torch.split(dataset.local(scored), DATASET_ROWS):
        sites = fit.sites.linear[rows], fit.sites.precision[rows]
        mean, variance = fit.posterior.leave_one_out(*dataset.rows(rows), *sites)
        total += likelihood.predictive_log(mean, variance, dataset.observations[rows]).sum()
    return float(dataset.reduce(total)) / len(scored)


def search_and_fit(
    sites: Sites,
    dataset: FeatureDataset,
    model_at: Callable[[SearchPoint], tuple[Likelihood, float] | None],
    score: Callable[[Fit], float],
    start: SearchPoint,
    steps: Sequence[SearchPoint],
    *,
    report: Callable[[float], None] = lambda bound: None,
    checkpoint: Checkpoint | None = None,
) -> Fit:
    """Natural gradient steps with the likelihood and GP variance that score best.

    `model_at` gives these for a point of the search, or None outside its range; without steps only the start
    is fitted. The first fit begins at the given sites, each later one at the best so far.
    """
    best: tuple[float, Fit] | None = None
    tried = 0

    def loss(point: SearchPoint) -> float:
        nonlocal best, tried
        model = model_at(point)
        if model is None:
            return float("inf")
        fit = natural_steps(
            sites if best is None else best[1].sites,
            dataset,
            *model,
            report=report,
            checkpoint=checkpoint,
            checkpoint_key=f"natural-gradient:{tried}",
        )
        tried += 1
        if fit is None:
            return float("inf")
        value = -score(fit) if steps else 0.0
        if best is None or value < best[0]:
            best = value, fit
        return value

    pattern_search(loss, start, steps, diagonals=False)
    if best is None:
        raise ValueError("natural gradients: the posterior at the start of the search is improper")
    return best[1]
