"""The sequence of a fit: data → term specifications → selection → learning → inducing patches → inference."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.inference.context import FitContext
from gcgp.inference.method import InferenceProblem, InferenceResult
from gcgp.inference.training_set import TrainingSet
from gcgp.selection.content_order import content_order
from gcgp.selection.diagnostics import warn_if_identical
from gcgp.selection.learning import LearnConfig, check_names, learn_model
from gcgp.selection.lengthscales import Candidate, search_lengthscales
from gcgp.selection.options import LEARNED_BY_DEFAULT, ModelOptions
from gcgp.selection.term_specs import build_term_specs, constant_variance
from gcgp.selection.trial import InducingPatches, Trial
from gcgp.selection.weightings import resolve_weightings
from gcgp.weighting import Weighting

TRIAL_SIGNALS = 1_000
"""Training signals on which models are compared; more if they have very few vertices."""
MAX_SCORED_TRIAL_SIGNALS = 500
"""At most this many of them, and at most half, are scored by leave-one-out."""
MAX_SCORED_SIGNALS = 2_000
"""Training signals on which variance and likelihood of the final model are selected."""
TRIAL_INDUCING = 300


@dataclass(frozen=True)
class FittedModel:
    """The result of a fit."""

    inference: InferenceResult
    start_weightings: Sequence[Weighting] | None
    """Weightings before learning; None if nothing was learned."""


def fit_model(
    data: TrainingSet,
    options: ModelOptions,
    vertex_weights: Float[Tensor, "vertices"] | None,
    context: FitContext,
) -> FittedModel:
    """Fit a model with the given options to the training signals."""
    closed_form, method = options.likelihood.closed_form(), options.method
    order = _random_order(data, context.rng)
    trial_rows = order[: _trial_size(data, options, context)]
    trial_data = data.gathered(trial_rows)
    signals = trial_data.signals

    context.progress.stage("patches of trial signals", len(signals))
    scored = max(1, min(MAX_SCORED_TRIAL_SIGNALS, len(signals) // 2))
    specs = build_term_specs(
        options,
        signals,
        scored,
        vertex_weights,
        context.dtype,
        context.memory,
        context.rng,
        context.progress.update,
    )
    if data.processes.rank == 0:
        warn_if_identical(specs, signals)

    context.progress.stage("lengthscales", unit="models")
    trial = Trial(
        trial_data,
        closed_form,
        options.variance,
        min(options.n_inducing, TRIAL_INDUCING),
        options.trial_inducing_method,
        constant_variance(specs, signals) if method.constant_term else 0.0,
        data.processes,
        context.device,
        context.progress.update,
    )
    candidate = search_lengthscales(
        trial, specs, options.kernel.lengthscale, options.patch.position, context.rng
    )

    learn = options.learn
    start_weightings, learned_inducing = None, None
    if learn is not None or method.learns_jointly:
        start_weightings = copy.deepcopy([spec.convolution.weighting for spec in candidate.specs])
    if learn is not None:
        check_names(learn, candidate, closed_form.parameter)
    if learn is not None and not method.learns_jointly:
        context.progress.stage("learning", unit="models")
        # A generator of its own: learning that is not kept leaves no trace in later draws.
        learning_context = replace(context, rng=context.rng.spawn(1)[0])
        config = LearnConfig(
            data, trial_rows, trial, options, learn, -(-scored // 2), trial.n_inducing, learning_context
        )
        candidate, learned_inducing = learn_model(candidate, config)

    problem = _inference_problem(
        data, options, context, trial, candidate, learned_inducing, trial_rows, order
    )
    return FittedModel(method.fit(problem), start_weightings)


def _inference_problem(
    data: TrainingSet,
    options: ModelOptions,
    context: FitContext,
    trial: Trial,
    candidate: Candidate,
    learned_inducing: InducingPatches | None,
    trial_rows: Int[np.ndarray, "n"],
    order: Int[np.ndarray, "N"],
) -> InferenceProblem:
    """Choose inducing patches, and hand everything over to the inference method."""
    specs, lengthscales, rng = candidate.specs, candidate.lengthscales, context.rng
    inducing = learned_inducing or [
        spec.inducing(scales, options.n_inducing, options.inducing, rng)
        for spec, scales in zip(specs, lengthscales, strict=True)
    ]
    terms = [
        spec.term(scales, patches)
        for spec, scales, patches in zip(specs, lengthscales, inducing, strict=True)
    ]
    closed_form, selected = trial.closed_form, None
    names: tuple[str, ...] = () if options.learn is None else options.learn.names(closed_form.parameter)
    if options.method.learns_jointly:
        names = names or (*LEARNED_BY_DEFAULT, closed_form.parameter, "position", "inducing")
        trial_inducing = candidate.inducing or trial.inducing(specs, lengthscales, rng)
        selected = trial.score(specs, lengthscales, trial_inducing, candidate.start).selected
    # Signals that gave no inducing patches: some of the trial signals, and those beyond them.
    fresh = np.concatenate([trial_rows[: specs[0].scored], order[len(trial_rows) :]])
    return InferenceProblem(
        data=data,
        terms=terms,
        columns=[spec.columns for spec in specs],
        constant=trial.constant,
        likelihood=options.likelihood,
        closed_form=closed_form,
        variance=options.variance,
        scored=np.sort(fresh[:MAX_SCORED_SIGNALS]),
        start=candidate.start,
        selected=selected,
        learn=options.free(names),
        context=context,
    )


def _random_order(data: TrainingSet, rng: np.random.Generator) -> Int[np.ndarray, "N"]:
    """A random order of all signals that depends on their content, not on the order they were given in."""
    targets = np.concatenate(data.processes.gather((data.group + data.targets).numpy()))
    ordered = content_order(data.signals, targets, data.processes, int(rng.integers(2**31)))
    return ordered[rng.permutation(data.count)]


def _trial_size(data: TrainingSet, options: ModelOptions, context: FitContext) -> int:
    """How many signals models are compared on: as the memory limit allows, enough for inducing patches."""
    signals = data.signals
    weightings = resolve_weightings(options.weighting, signals.domains)
    columns = sum(weighting.bins * (signals.channels + 1) + 3 for weighting in weightings)
    vertices = sum(data.processes.gather(len(signals.values))) / data.count
    affordable = int(context.memory / (columns * context.dtype.itemsize * vertices * 4))
    # Signals that are not scored give the inducing patches: with few vertices per signal, more are needed.
    enough = TRIAL_SIGNALS // 2 + int(2 * options.n_inducing / vertices)
    return max(2, min(max(TRIAL_SIGNALS, enough), affordable))
