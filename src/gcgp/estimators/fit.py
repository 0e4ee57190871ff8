"""The sequence of a fit: data → model search → learning → inducing patches → inference."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.domain import Signals
from gcgp.inference.context import FitContext, Progress
from gcgp.inference.method import InferenceProblem, InferenceResult
from gcgp.inference.training_set import TrainingSet
from gcgp.selection.base_rate import frequency_model, warn_about_bounds, warn_about_selection
from gcgp.selection.content_order import content_order
from gcgp.selection.diagnostics import warn_if_identical
from gcgp.selection.learn_config import LearnConfig
from gcgp.selection.learning import check_names, learn_model
from gcgp.selection.lengthscales import Candidate
from gcgp.selection.options import LEARNED_BY_DEFAULT, ModelOptions
from gcgp.selection.search import ModelSearch, SearchTable, rungs_of
from gcgp.selection.term_specs import TermSpec
from gcgp.selection.trial import InducingPatches, Trial
from gcgp.selection.weightings import resolve_weightings
from gcgp.weighting import Weighting

TRIAL_SIGNALS = 1_000
"""Training signals on which models are compared; more if they have very few vertices."""
MIN_SCORED_TRIAL_SIGNALS, MAX_SCORED_TRIAL_SIGNALS = 400, 500
"""Half of them are scored by leave-one-out, but not fewer or more; the others give inducing patches."""
MAX_POOLED_TRIAL_INDUCING = TRIAL_SIGNALS
"""Inducing patches of pooled signals while models are compared: all trial signals, so that leaving one out is
exact. With fewer, longer lengthscales seem to be better than they are."""
POOLED_SIGNALS_PER_INDUCING = 2
"""Signals per inducing patch among which these are chosen if each signal is pooled to one patch."""
POOLED_SAMPLE_COPIES = 2
"""The patches of these signals, and those of them that become inducing patches."""
MIN_SCORED_SIGNALS, MAX_SCORED_SIGNALS = 500, 2_000
"""Training signals on which variance and likelihood of the final model are selected: a quarter of them, but
not fewer or more."""


@dataclass(frozen=True)
class FittedModel:
    """The result of a fit."""

    inference: InferenceResult
    start_weightings: Sequence[Weighting] | None
    """Weightings before learning; None if nothing was learned."""
    search: SearchTable
    """The configurations that were compared."""


def fit_model(
    data: TrainingSet,
    options: ModelOptions,
    vertex_weights: Float[Tensor, "vertices"] | None,
    context: FitContext,
    table: SearchTable | None = None,
) -> FittedModel:
    """Fit a model with the given options to the training signals.

    Configurations that are compared are added to the table.
    """
    closed_form, method, learn = options.likelihood.closed_form(), options.method, options.learn
    order = _random_order(data, context.rng)
    trial_rows = order[: _trial_size(data, options, context)]
    trial_data = data.gathered(trial_rows)
    signals = trial_data.signals

    context.progress.stage("model selection", unit="models")
    template = Trial(
        trial_data,
        closed_form,
        options.variance,
        options.n_inducing,
        options.trial_inducing_method,
        min(options.n_inducing, MAX_POOLED_TRIAL_INDUCING),
        processes=data.processes,
        device=context.device,
        progress=context.progress.update,
    )
    scored = _scored_size(len(signals))
    quiet = replace(context, progress=Progress())
    search = ModelSearch(trial_data, template, options, scored, vertex_weights, quiet, table or SearchTable())
    result = search.run()
    candidate, trial = result.best.candidate, result.best.trial
    identical = data.processes.rank == 0 and warn_if_identical(candidate.specs, trial.data.signals)
    frequencies = None
    if learn is None and options.variance is None and method.constant_term:
        frequencies = frequency_model(result, context.rng)
    if frequencies is not None:
        trial = replace(trial, constant=frequencies.constant, variance=frequencies.variance)
    labels = np.concatenate(data.processes.gather(data.group.numpy()))
    if data.processes.rank == 0 and not identical:
        warn_about_selection(np.bincount(labels, minlength=data.groups), frequencies)
        if frequencies is None:
            warn_about_bounds(candidate, options)

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
            data,
            trial_rows,
            trial,
            options,
            learn,
            -(-candidate.specs[0].scored // 2),
            trial.n_inducing,
            learning_context,
        )
        candidate = _with_all_columns(candidate, trial.data.signals, context)
        candidate, learned_inducing = learn_model(candidate, config)

    problem = _inference_problem(
        data, options, context, trial, candidate, learned_inducing, trial_rows, order
    )
    return FittedModel(method.fit(problem), start_weightings, search.table)


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
    counts = [options.inducing_per_scale(len(specs), pooled=spec.convolution.pooled) for spec in specs]
    used = len(trial_rows)  # leading signals of the order, which may give inducing patches
    if learned_inducing is None and any(spec.convolution.pooled for spec in specs):
        # The default number of inducing patches is limited by memory, one that the user gave is not.
        least = used if options.auto_inducing else max(used, min(data.count, max(counts)))
        used = _pooled_sample(data, specs, max(counts), least, context)
        sample = data.gathered(order[:used]).signals
        specs = [
            spec.with_convolution(spec.convolution, sample, context.memory, rng)
            if spec.compact or (spec.convolution.pooled and len(spec.trial) < used)
            else spec
            for spec in specs
        ]
    inducing = learned_inducing or [
        spec.inducing(scales, count, options.inducing, rng)
        for spec, scales, count in zip(specs, lengthscales, counts, strict=True)
    ]
    terms = [
        spec.term(scales, patches)
        for spec, scales, patches in zip(specs, lengthscales, inducing, strict=True)
    ]
    closed_form, selected = trial.closed_form, None
    names: tuple[str, ...] = () if options.learn is None else options.learn.names(closed_form.parameter)
    if options.method.learns_jointly:
        names = names or (*LEARNED_BY_DEFAULT, closed_form.parameter, "position", "inducing")
        trial_inducing = candidate.inducing or trial.inducing(candidate.specs, lengthscales, rng)
        selected = trial.score(candidate.specs, lengthscales, trial_inducing, candidate.start).selected
    # Signals that gave no inducing patches: some of the trial signals, and those beyond them.
    fresh = np.concatenate([trial_rows[: specs[0].scored], order[used:]])
    return InferenceProblem(
        data=data,
        terms=terms,
        columns=[spec.columns for spec in specs],
        constant=trial.constant,
        likelihood=options.likelihood,
        closed_form=closed_form,
        variance=trial.variance,
        scored=np.sort(fresh[: min(max(data.count // 4, MIN_SCORED_SIGNALS), MAX_SCORED_SIGNALS)]),
        start=candidate.start,
        selected=selected,
        learn=options.free(names),
        context=context,
    )


def _with_all_columns(candidate: Candidate, trial: Signals, context: FitContext) -> Candidate:
    """The candidate with all columns of its patches, for gradients: no coordinates in fewer dimensions."""
    if not any(spec.compact for spec in candidate.specs):
        return candidate
    specs = [
        spec.with_convolution(spec.convolution, trial, context.memory, context.rng) if spec.compact else spec
        for spec in candidate.specs
    ]
    return replace(candidate, specs=specs, inducing=None)


def _pooled_sample(
    data: TrainingSet, specs: Sequence[TermSpec], n_inducing: int, least: int, context: FitContext
) -> int:
    """How many signals give inducing patches where each has only one patch, as the memory limit allows."""
    size = max(
        spec.convolution.columns(data.signals)["bins"].stop for spec in specs if spec.convolution.pooled
    )
    affordable = int(context.memory / (POOLED_SAMPLE_COPIES * size * context.dtype.itemsize))
    return max(least, min(data.count, POOLED_SIGNALS_PER_INDUCING * n_inducing, affordable))


def _random_order(data: TrainingSet, rng: np.random.Generator) -> Int[np.ndarray, "N"]:
    """A random order of all signals that depends on their content, not on the order they were given in."""
    targets = np.concatenate(data.processes.gather((data.group + data.targets).numpy()))
    ordered = content_order(data.signals, targets, data.processes, int(rng.integers(2**31)))
    return ordered[rng.permutation(data.count)]


def _scored_size(trial_signals: int) -> int:
    """How many trial signals are scored by leave-one-out."""
    half = min(MAX_SCORED_TRIAL_SIGNALS, trial_signals // 2)
    return min(trial_signals, max(half, MIN_SCORED_TRIAL_SIGNALS))


def _trial_size(data: TrainingSet, options: ModelOptions, context: FitContext) -> int:
    """How many signals models are compared on: as the memory limit allows, enough for inducing patches."""
    signals = data.signals
    weightings = resolve_weightings(options.weighting, signals.domains, options.chart)
    columns = sum(weighting.bins * (signals.channels + 1) + 3 for weighting in weightings)
    vertices = sum(data.processes.gather(len(signals.values))) / data.count
    patches = min(vertices, rungs_of(options.search, signals.domains)[-1].patches)
    affordable = int(context.memory / (columns * context.dtype.itemsize * patches * 4))
    # Signals that are not scored give the inducing patches: with few vertices per signal, more are needed.
    enough = TRIAL_SIGNALS // 2 + int(2 * options.n_inducing / vertices)
    return max(2, min(max(TRIAL_SIGNALS, enough), affordable))
