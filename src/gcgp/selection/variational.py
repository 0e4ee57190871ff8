"""Variational inference for the estimators: from their closed form on, or from nothing, as in the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int, Num
from torch import Tensor

from gcgp._runtime.checkpoint import Checkpoint
from gcgp.inference import DirichletClassification, Features, GaussianRegression, Posterior, Statistics, Term
from gcgp.inference.likelihoods import Anchored, Likelihood, RobustMax, Softmax
from gcgp.inference.natural_gradient import FeatureDataset, Fit, Score, Sites, search_and_fit
from gcgp.inference.parameters import Parameters, log_priors, scalar_parameter
from gcgp.inference.search import SearchPoint
from gcgp.inference.svgp import CachedFeatures, FreePosterior, RecomputedFeatures, Source, adam
from gcgp.selection.job import Job
from gcgp.selection.learning import MOST_SCORED, fastened, loosened
from gcgp.selection.optimizer import History

INFERENCES = ("closed-form", "refined", "variational")
LIKELIHOODS = ("auto", "anchored", "softmax", "robust-max")
FIRST_WEIGHT, WEIGHT_STEP, LEAST_WEIGHT, MOST_WEIGHT = 1.5, 1.0, -0.5, 2.5
"""log4 of the softmax's weight beside the anchors: where its search starts, its step, and its limits.

Beyond 32 leave-one-out likelihoods promise more than unseen digits keep.
"""
VARIANCE_STEPS = (0.5, 0.25)
"""log10 of the factor between two GP variances that are compared, first and then."""
MOST_DECADES = {"bound": 4.0, "leave-one-out": 1.0}
"""How far from that of the closed form: leave-one-out knows no end where all are told apart."""
STEP_DRAWS = 32
"""Draws behind an expected log softmax in one step of Adam, other ones in each step."""
MOST_LOOKED_AT = 500
"""Signals by which the start of the steps is judged."""
START_ALPHAS = (1e-3, 1e-2)
"""α_ε of the closed forms that steps may start from, beside the one that was chosen."""


def class_likelihood(name: str, classes: int) -> Softmax | RobustMax:
    """What predictions take for the likelihood."""
    return RobustMax(classes) if name == "robust-max" else Softmax(classes)


def fit_natural_gradient(
    observed: FeatureDataset,
    statistics: Statistics,
    closed: DirichletClassification | GaussianRegression,
    likelihood: str,
    variance: float,
    *,
    free_variance: bool,
    by_bound: bool,
    history: History,
    checkpoint: Checkpoint | None,
    rng: np.random.Generator,
) -> Fit:
    """Natural gradient steps from the closed form.

    Of a softmax that is anchored at the closed form the weight is searched; of the other likelihoods of
    classes, unless it is given, the GP variance, because what is best for the closed form is not for them.
    """
    history.stage = "natural"
    count = min(MOST_SCORED, observed.count)
    rows = torch.from_numpy(np.sort(rng.permutation(observed.count)[:count]))
    classes = len(statistics.count)
    start: SearchPoint = (0.0,)
    steps: Sequence[SearchPoint] = ()
    begin = closed
    scored: Likelihood
    if isinstance(closed, GaussianRegression):
        scored = closed

        def at(point: SearchPoint) -> tuple[Likelihood, float] | None:
            return closed, variance

    elif likelihood == "anchored" or (likelihood == "auto" and not by_bound):
        scored = Softmax(classes)
        by_bound = False  # bounds of different weights are of different things
        start, steps = (FIRST_WEIGHT,), [(WEIGHT_STEP,)]

        def at(point: SearchPoint) -> tuple[Likelihood, float] | None:
            if not LEAST_WEIGHT <= point[0] <= MOST_WEIGHT:
                return None
            return Anchored(Softmax(classes), closed, 4.0 ** point[0]), variance

    else:
        scored = class_likelihood(likelihood, classes)
        few = rows[torch.from_numpy(rng.permutation(len(rows))[:MOST_LOOKED_AT])]
        begin = best_start(closed, observed, few, statistics, scored, variance)
        steps = [(size,) for size in VARIANCE_STEPS] if free_variance else ()

        def at(point: SearchPoint) -> tuple[Likelihood, float] | None:
            within = abs(point[0]) <= MOST_DECADES["bound" if by_bound else "leave-one-out"]
            return (scored, variance * 10 ** point[0]) if within else None

    return search_and_fit(
        closed_sites(begin, observed, classes),
        observed,
        at,
        Score(observed, scored, None if by_bound else rows),
        start,
        steps,
        tell=history.add,
        checkpoint=checkpoint,
    )


def best_start(
    closed: DirichletClassification,
    observed: FeatureDataset,
    rows: Int[Tensor, "n"],
    statistics: Statistics,
    likelihood: Likelihood,
    variance: float,
) -> DirichletClassification:
    """The α_ε whose closed form has the largest bound, judged by some of the signals."""

    def bound(candidate: DirichletClassification) -> float:
        posterior = candidate.posterior(statistics, variance)
        here = observed.own(rows)
        mean, spread = posterior.predict(observed.features[here].double(), observed.residual[here].double())
        fit = observed.total(likelihood.expected_log(mean, spread, observed.targets[here]).sum()) / len(rows)
        return float(fit - posterior.divergence() / observed.count)

    return max([closed, *map(DirichletClassification, START_ALPHAS)], key=bound)


def closed_sites(
    closed: DirichletClassification | GaussianRegression, observed: FeatureDataset, latents: int
) -> Sites:
    """The sites of a closed form: its targets."""
    if isinstance(closed, GaussianRegression):
        noise = torch.as_tensor(closed.noise, dtype=torch.float64)
        targets = observed.targets[:, None]
        return Sites(targets / noise, (1 / noise).expand_as(targets).clone())
    targets, noise = closed.targets(observed.targets, latents)
    return Sites(targets / noise, 1 / noise)


@dataclass(frozen=True)
class Everything:
    """What the paper's way came to."""

    terms: Sequence[Term]
    posterior: Posterior
    noise: float | None
    bound: float


def fit_svgp(
    terms: Sequence[tuple[Term, dict[str, slice]]],
    job: Job,
    targets: Num[Tensor, "N"],
    *,
    latents: int,
    likelihood: str | None,
    variance: float,
    noise: float,
    names: Sequence[str],
    epochs: int,
    batch: int,
    learning_rate: float,
    draws: int,
    seed: int,
    tell: Callable[[int], None],
) -> Everything:
    """Adam on q and everything named, from the prior; `likelihood` None is Gaussian noise.

    `terms` come with the columns of their patches.
    """
    loose = [loosened(term, names, columns) for term, columns in terms]
    knobs = [knob for _, own in loose for knob in own]
    log_variance, log_noise = (
        torch.tensor(np.log(value), dtype=torch.float64, requires_grad=True) for value in (variance, noise)
    )
    if "variance" in names:
        knobs.append(scalar_parameter("variance", log_variance))
    if "noise" in names and likelihood is None:
        knobs.append(scalar_parameter("noise", log_noise))
    features = Features([term for term, _ in loose], job.memory, job.device)
    posterior = FreePosterior.prior(features.size, latents, log_variance, features.terms[0].inducing.dtype)

    def of_step(step: int) -> Likelihood:
        if likelihood is None:
            return GaussianRegression(log_noise.exp())
        if likelihood != "robust-max":
            return Softmax(latents, STEP_DRAWS, seed=seed + step)
        return RobustMax(latents)

    job.history.stage = "paper"
    source: Source = RecomputedFeatures(features, job.signals, draws, seed, job.first)
    if not any(own for _, own in loose):
        observed = FeatureDataset.room(features.size, targets, torch.float64, job.memory)
        for chunk in features.chunks(job.signals, draws=draws, seed=seed, first=job.first):
            observed.fill(chunk)
        source = CachedFeatures(observed)
    adam(
        posterior,
        source,
        of_step,
        targets,
        Parameters(knobs),
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        seed=seed,
        history=job.history,
        checkpoint=job.checkpoint,
        tell=tell,
        processes=job.processes,
        first=job.first,
        count=job.count,
        log_prior=lambda: log_priors([term.kernel for term, _ in loose]),
    )
    return Everything(
        [fastened(term) for term, _ in loose],
        posterior.settled(),
        float(log_noise.detach().exp()) if likelihood is None else None,
        job.history.steps[-1].value * job.count,
    )
