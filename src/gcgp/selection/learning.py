"""Gradient-based learning of weightings and kernels, from the result of the lengthscale search.

First, if distances of the weighting are learned, a search for where to start: gradients alone do not leave a
neighborhood that is far too small. Then optimization from the best start, and from others that are about as
good. Signals that are not part of the objective decide between the results, the starts and the given model.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Int
from torch import Tensor

from gcgp._runtime.errors import unknown_option
from gcgp.domain import Signals
from gcgp.inference.context import FitContext
from gcgp.inference.features import Features, Term
from gcgp.inference.likelihoods import normal_draws
from gcgp.inference.parameters import (
    Parameters,
    TrainableParameter,
    frozen_convolution,
    learnable_names,
    scalar_parameter,
    trainable_term,
)
from gcgp.inference.search import SearchPoint
from gcgp.kernel import RotationAverage
from gcgp.selection.comparison import Compared
from gcgp.selection.learn_config import CHECK_SIGNALS, Division, LearnConfig, LearnedModel
from gcgp.selection.lengthscales import Candidate
from gcgp.selection.objective import Anchors, Objective, Scored
from gcgp.selection.optimizer import maximize
from gcgp.selection.options import Learn
from gcgp.selection.starts import has_rings, search_rings, search_zoom
from gcgp.selection.term_specs import Lengthscales
from gcgp.weighting import Weighting
from gcgp.weighting.base import CENTER_PARAMETERS, WIDTH_PARAMETERS

MAX_OBJECTIVE_SIGNALS = 4_000
"""Signals of the objective: more take long and change little."""
MAX_OBJECTIVE_PATCHES = 1_500_000
"""The objective has at most as many signals as have this number of patches."""
MAX_OBJECTIVE_KERNELS = 600_000_000
"""If there were more kernel values, the objective has fewer inducing patches.

Fewer vertices per image would bias learning towards wide bins, whose patches vary less between neighbors.
"""
OBJECTIVE_PATCH_DRAWS = 128
"""Patches drawn per signal to estimate prior variances."""
OBJECTIVE_SOFTMAX_DRAWS = 128
LEARNED_DECIMALS = 6
"""Results are rounded: other numbers of threads or processes, which add in another order, give the same."""
SAMPLE_SHARE = 0.25
"""Share of the iterations if there are more signals than trial signals: each takes longer and gains less."""
START_SIGNALS, START_INDUCING = 1_500, 400
"""Signals and inducing patches per scale with which starts are compared."""
MAX_START_LOSS = 0.01
"""Learning also starts from a start that is worse than the best one by at most this (nats per signal)."""
MIN_GAIN_OF_LEARNING = 0.01
"""Learned parameters are kept if held-out signals gain this much (nats per signal)."""


def check_names(learn: Learn, candidate: Candidate, likelihood_parameter: str) -> None:
    """Raise a ValueError that lists what can be learned if a name is not among it."""
    known = {"variance", likelihood_parameter}
    for spec, scales in zip(candidate.specs, candidate.lengthscales, strict=True):
        term = spec.term(scales, spec.trial.values[:1])
        known |= set(learnable_names(term, spec.columns, isinstance(spec.kernel, str)))
    if learn.parameters is not None:
        for name in learn.names(likelihood_parameter):
            if name not in known:
                raise unknown_option("learn", name, tuple(sorted(known)))


def learn_model(candidate: Candidate, config: LearnConfig) -> tuple[Candidate, Sequence[Tensor] | None]:
    """The learned candidate and its inducing patches if these were learned.

    The given candidate is returned unless held-out signals are predicted better by more than chance.
    """
    context, history = config.context, config.context.history
    everything = config.data.gathered(config.trial_rows)
    trial, specs = everything.signals, candidate.specs
    if len(config.trial.data.signals) < len(trial):  # the search has used only some of the trial signals
        config = replace(config, trial=replace(config.trial, data=everything))
        specs = [
            spec.with_convolution(spec.convolution, trial, context.memory, context.rng) for spec in specs
        ]
    division = Division.of(config, float(trial.vertex_counts.mean()))
    given = LearnedModel(specs, candidate.lengthscales, 1.0, 1.0)
    results, start = _learn(given, config, division, trial, candidate.start)
    if results[-1].inducing is not None:  # a comparison with other inducing patches would not be fair
        learned = results[-1]
        return Candidate(learned.specs, learned.lengthscales, None, start), learned.inducing
    check = division.comparison(config, CHECK_SIGNALS, config.all_inducing(given), held_out=True)
    compared = []
    for model in (given, *results):
        compared.append(check.score(model.specs, model.lengthscales, start))
        start = compared[-1].next_start
    before = compared.pop(0)
    after, learned = max(zip(compared, results, strict=True), key=lambda pair: pair[0].mean)
    better = _is_better(after, before)
    history.stage = "check"
    for value in (before.mean, after.mean if better else before.mean):
        history.add(value)
    if not better:
        return candidate, None
    return Candidate(learned.specs, learned.lengthscales, None, after.next_start), None


def _is_better(after: Compared, before: Compared) -> bool:
    """Whether held-out signals gain enough, and more than chance."""
    gain = after.logs - before.logs
    standard_error = float(gain.std(correction=0)) / len(gain) ** 0.5
    return float(gain.mean()) > max(MIN_GAIN_OF_LEARNING, standard_error)


def _learn(
    given: LearnedModel, config: LearnConfig, division: Division, trial: Signals, start: SearchPoint
) -> tuple[list[LearnedModel], SearchPoint]:
    """Models to choose from: the starts and the results of learning; if the user interrupts, those so far.

    `start` is where searches for variance and likelihood start; where the next should start is returned.
    """
    history = config.context.history
    results, interrupted = [given], False
    max_iter = config.learn.max_iter * (1.0 if division.trial_only else SAMPLE_SHARE)
    try:
        starts, start = _starts(given, config, division, trial, start)
        if "inducing" in config.names:  # results with learned inducing patches cannot be compared
            starts = starts[:1]
        results = list(starts)
        for number, model in enumerate(starts):
            history.stage = "trial" if division.trial_only else "more"
            steps = max(1, round(max_iter / len(starts)))
            learned, interrupted = _optimize(model, config, division, trial, steps, f"learn/{number}")
            results.append(learned)
            if interrupted:
                break
    except KeyboardInterrupt:
        interrupted = True
    if interrupted:
        steps = len(history.steps)
        warnings.warn(f"learning was interrupted after {steps} steps; the best so far is kept", stacklevel=2)
    return results, start


def _starts(
    given: LearnedModel, config: LearnConfig, division: Division, trial: Signals, start: SearchPoint
) -> tuple[list[LearnedModel], SearchPoint]:
    """Models to start from, the best first: with the best neighborhood size, and with evenly spaced rings."""
    n_inducing = config.n_inducing if division.trial_only else START_INDUCING
    n_inducing = min(n_inducing, config.all_inducing(given))
    comparison = division.comparison(config, START_SIGNALS, n_inducing, held_out=False)
    context, names = config.context, config.names
    tried: list[tuple[float, LearnedModel]] = []

    def score(model: LearnedModel, penalty: float = 0.0) -> float:
        nonlocal start
        result = comparison.score(model.specs, model.lengthscales, start)
        start, selected = result.next_start, result.selected
        noise = float(getattr(selected.likelihood, config.parameter))
        tried.append((selected.loss + penalty, replace(model, variance=selected.variance, noise=noise)))
        return selected.loss + penalty

    def loss(weightings: Sequence[Weighting], factor: float, penalty: float) -> float:
        value = score(_with_weightings(given, weightings, factor, trial, context), penalty)
        context.history.add(penalty - value)
        return value

    def best_of_tried() -> tuple[float, LearnedModel]:
        best = min(tried, key=lambda pair: pair[0])
        tried.clear()
        return best

    weightings = [spec.convolution.weighting for spec in given.specs]
    movable = any(name in CENTER_PARAMETERS for name in names)
    if not movable or any(weighting.zoomed(1.0) is None for weighting in weightings):
        score(given)
        return [best_of_tried()[1]], start
    context.history.stage = "zoom"
    widths = len(weightings) == 1 and any(name in WIDTH_PARAMETERS for name in names)
    rings = weightings[0] if widths and has_rings(weightings[0]) else None
    search_zoom(weightings, loss, refine=rings is None)
    starts = [best_of_tried()]
    if rings is not None:
        scaled = isinstance(given.specs[0].kernel, str) and not {"lengthscale", "lengthscales"}.isdisjoint(
            names
        )
        chart = given.specs[0].convolution.chart
        search_rings(rings, trial.domains, chart, loss, lengthscale=scaled)
        starts.append(best_of_tried())
    starts.sort(key=lambda pair: pair[0])
    limit = starts[0][0] + MAX_START_LOSS
    return [model for value, model in starts if value <= limit], start


def _with_weightings(
    model: LearnedModel,
    weightings: Sequence[Weighting],
    factor: float,
    trial: Signals,
    context: FitContext,
) -> LearnedModel:
    """The model with other weightings, and lengthscales multiplied relative to the median distances."""
    specs, lengthscales = [], []
    for spec, scales, weighting in zip(model.specs, model.lengthscales, weightings, strict=True):
        convolution = replace(spec.convolution, weighting=weighting)
        specs.append(spec.with_convolution(convolution, trial, context.memory, context.rng))
        lengthscales.append(_rescaled(scales, spec.medians, specs[-1].medians, factor))
    return replace(model, specs=specs, lengthscales=lengthscales)


def _rescaled(
    scales: Lengthscales, before: Mapping[str, float], after: Mapping[str, float], factor: float = 1.0
) -> Lengthscales:
    """The same multiples of the median distances, times a factor, of columns that depend on the weighting."""
    return {
        name: scale if name == "position" else scale * (factor * after[name] / before[name])
        for name, scale in scales.items()
    }


def _optimize(
    model: LearnedModel,
    config: LearnConfig,
    division: Division,
    trial: Signals,
    max_iter: int,
    checkpoint_key: str,
) -> tuple[LearnedModel, bool]:
    """Optimize with inducing patches at vertices of trial signals.

    Also returns whether the user has interrupted.
    """
    context, names = config.context, config.names
    vertices = max(float(trial.vertex_counts.mean()), 1.0)
    affordable = max(len(trial), int(MAX_OBJECTIVE_PATCHES / vertices))
    data, scored = division.objective_data(config.data, min(affordable, MAX_OBJECTIVE_SIGNALS))
    n_inducing = config.all_inducing(model)
    if "inducing" not in names:
        affordable = int(MAX_OBJECTIVE_KERNELS / (vertices * data.count))
        n_inducing = min(n_inducing, max(config.n_inducing, affordable))
    terms, anchors, parameters = _trainable_terms(
        model, config, trial, len(trial) - len(division.inducing), n_inducing
    )
    log_variance, log_noise = (
        torch.tensor(np.log(value), dtype=torch.float64, requires_grad=True)
        for value in (model.variance, model.noise)
    )
    for name, logarithm in (("variance", log_variance), (config.parameter, log_noise)):
        if name in names:
            parameters.append(scalar_parameter(name, logarithm))
    vector = Parameters(parameters)
    objective = Objective(
        Features(terms, context.memory, context.device, config.trial.constant),
        data,
        config.trial.closed_form,
        log_noise,
        log_variance,
        vector,
        anchors,
        None
        if config.learn.objective == "bound"
        else Scored(scored, normal_draws(data.groups, OBJECTIVE_SOFTMAX_DRAWS)),
        OBJECTIVE_PATCH_DRAWS,
        seed=int(context.rng.integers(2**31)),
    )
    best, _, interrupted = maximize(
        objective,
        np.zeros(vector.size),
        bounds=vector.bounds,
        optimizer=config.learn.optimizer,
        max_iter=max_iter,
        history=context.history,
        checkpoint=context.checkpoint,
        checkpoint_key=checkpoint_key,
    )
    low, high = np.array(vector.bounds).reshape(-1, 2).T
    vector.set(np.clip(np.round(best, LEARNED_DECIMALS), low, high))
    specs = [
        replace(
            spec.with_convolution(frozen_convolution(term.convolution), trial, context.memory, context.rng),
            kernel=spec.kernel if isinstance(spec.kernel, str) else _unaveraged(term.kernel.base),
            vertex_weights=_detached(term.kernel.vertex_weights),
        )
        for spec, term in zip(model.specs, terms, strict=True)
    ]
    learned = LearnedModel(
        specs,
        [
            spec.read_lengthscales(term.kernel.base, scales)
            for spec, term, scales in zip(specs, terms, model.lengthscales, strict=True)
        ],
        float(log_variance.detach().exp()),
        float(log_noise.detach().exp()),
        [term.inducing.detach() for term in terms] if "inducing" in names else None,
    )
    return learned, interrupted


def _trainable_terms(
    model: LearnedModel, config: LearnConfig, trial: Signals, scored: int, n_inducing: int
) -> tuple[list[Term], list[Anchors | None], list[TrainableParameter]]:
    """Terms with trainable parameters; anchors move inducing patches along with a trainable weighting."""
    names, rng = config.names, config.context.rng
    terms: list[Term] = []
    anchors: list[Anchors | None] = []
    parameters: list[TrainableParameter] = []
    for spec, scales in zip(model.specs, model.lengthscales, strict=True):
        giving = replace(spec, scored=scored)
        rows = giving.inducing_rows(scales, n_inducing, config.options.inducing, rng)
        rows = rows[spec.trial.vertices[rows].argsort()]
        term = spec.term(scales, spec.trial.values[rows])
        term, own = trainable_term(term, names, spec.columns)
        learned = [tensor.requires_grad for tensor in term.convolution.weighting.parameters()]
        for layer in term.convolution.layers:
            learned += [tensor.requires_grad for tensor in layer.learnable.values()]
        fixed = "inducing" in names or not any(learned)
        anchors.append(None if fixed else _anchors(trial, spec.trial.vertices[rows]))
        terms.append(term)
        parameters += own
    return terms, anchors, parameters


def _detached(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()


def _unaveraged(kernel: Any) -> Kernel:
    return (kernel.base_kernel if isinstance(kernel, RotationAverage) else kernel).requires_grad_(False)


def _anchors(signals: Signals, vertices: Int[Tensor, "M"]) -> Anchors:
    """Anchors at these vertices, on only those signals that have some of them."""
    numbers = np.searchsorted(signals.offsets, vertices.numpy(), side="right") - 1
    used, place = np.unique(numbers, return_inverse=True)
    subset = signals[used]
    flat = vertices.numpy() - signals.offsets[numbers] + subset.offsets[place]
    return Anchors(subset, torch.from_numpy(flat))
