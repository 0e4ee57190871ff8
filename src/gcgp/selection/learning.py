"""Gradient-based learning of weightings and kernels, from the result of the lengthscale search.

First, if distances of the weighting are learned, a search for the best common factor of all of them:
gradients alone do not leave a neighborhood that is far too small. Then optimization on the trial signals with
few inducing patches, from there and from the default radii; from the better one on to more signals with all
inducing patches, and to all signals if these are not too many.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    learnable_names,
    scalar_parameter,
    trainable_term,
)
from gcgp.inference.search import SearchPoint, pattern_search
from gcgp.inference.training_set import TrainingSet
from gcgp.kernel import RotationAverage
from gcgp.selection.lengthscales import Candidate
from gcgp.selection.objective import Anchors, Objective, Scored
from gcgp.selection.optimizer import maximize
from gcgp.selection.options import Learn, ModelOptions
from gcgp.selection.term_specs import Lengthscales, TermSpec
from gcgp.selection.trial import InducingPatches, Trial
from gcgp.selection.weightings import with_default_radii
from gcgp.weighting import Weighting
from gcgp.weighting.base import CENTER_PARAMETERS, WIDTH_PARAMETERS

ZOOM_STEPS_OCTAVES = (1.0, 0.5)
"""log2 of the factor between two neighborhood sizes that are compared, at first and then."""
MAX_ZOOM_OCTAVES = 3.0
INDUCING_SHARE = 0.2
"""Share of the trial signals that give inducing patches; the objective is scored on others."""
MAX_OBJECTIVE_SIGNALS = 4_000
"""Signals of the leave-one-out objective."""
MIDDLE_SIGNALS = 4_000
"""Signals of the stage between the trial signals and all signals."""
MAX_LEARNING_SIGNALS = 20_000
"""Signals of the last stage: more take long and change little."""
MAX_LEARNING_PATCHES = 2_000_000
"""A stage has at most as many signals as have this number of patches."""
LAST_STAGE_SHARE = 0.1
"""Share of the iterations of the last stage."""
OBJECTIVE_PATCH_DRAWS = 128
"""Patches drawn per signal to estimate prior variances."""
OBJECTIVE_SOFTMAX_DRAWS = 128
MIN_GAIN_OF_LEARNING = 0.01
"""Learned parameters are kept if held-out signals gain this much (nats per signal)."""


@dataclass(frozen=True)
class LearnConfig:
    """The signals to learn from, and how."""

    data: TrainingSet
    trial_rows: Int[np.ndarray, "n"]
    """Indices of the trial signals in `data`; the first of them are scored."""
    trial: Trial
    options: ModelOptions
    learn: Learn
    held_out: int
    """The first trial signals are not part of the objective; they decide whether learning was worthwhile."""
    n_inducing: int
    context: FitContext

    @property
    def parameter(self) -> str:
        """Name of the parameter of the closed-form likelihood."""
        return str(self.trial.closed_form.parameter)

    @property
    def names(self) -> list[str]:
        """Names of the parameters to learn."""
        return self.options.free(self.learn.names(self.parameter))

    def subset(self, rows: Int[np.ndarray, "n"], n_inducing: int) -> LearnConfig:
        """The same on some of the signals, of which the trial signals are the first."""
        trial_rows = np.arange(len(self.trial_rows))
        return replace(self, data=self.data.subset(rows), trial_rows=trial_rows, n_inducing=n_inducing)


@dataclass(frozen=True)
class LearnedModel:
    """Terms and hyperparameters reached so far."""

    specs: Sequence[TermSpec]
    lengthscales: Sequence[Lengthscales]
    variance: float
    noise: float
    """Parameter of the closed-form likelihood."""
    inducing: InducingPatches | None = None
    """Inducing patches, if these were learned."""


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
    trial, rng, history = config.trial, config.context.rng, config.context.history
    specs, lengthscales = candidate.specs, candidate.lengthscales
    inducing = candidate.inducing or trial.inducing(specs, lengthscales, rng)
    result = trial.score(specs, lengthscales, inducing, candidate.start)
    noise = float(getattr(result.selected.likelihood, config.parameter))
    initial = LearnedModel(specs, lengthscales, result.selected.variance, noise)
    learned, start = _optimize_in_stages(initial, config, result.next_start)
    if learned.inducing is not None:  # a comparison with other inducing patches would not be fair
        trial_inducing = trial.inducing(learned.specs, learned.lengthscales, rng)
        result = trial.score(learned.specs, learned.lengthscales, trial_inducing, start)
        return Candidate(learned.specs, learned.lengthscales, None, result.next_start), learned.inducing
    check = replace(trial, n_inducing=int(config.options.n_inducing))
    logs = []
    for model in (initial, learned):
        inducing = check.inducing(model.specs, model.lengthscales, rng)
        result = check.score(model.specs, model.lengthscales, inducing, start)
        start = result.next_start
        logs.append(result.held_out_logs(config.held_out))
    before, after = logs
    gain = after - before
    standard_error = float(gain.std(correction=0)) / len(gain) ** 0.5
    better = float(gain.mean()) > max(MIN_GAIN_OF_LEARNING, standard_error)
    history.stage = "check"
    for values in (before, after if better else before):
        history.add(float(values.mean()))
    return (Candidate(learned.specs, learned.lengthscales, None, start) if better else candidate), None


def _stages(config: LearnConfig, trial: Signals) -> list[tuple[str, LearnConfig, float]]:
    """Display name, signals and share of the iterations of each stage."""
    n_inducing = int(config.options.n_inducing)
    on_trial = config.subset(config.trial_rows, config.n_inducing)
    count = config.data.count
    if count <= len(trial):
        return [("trial", on_trial, 1.0)]
    rest = np.setdiff1d(np.arange(count), config.trial_rows)
    order = np.concatenate([config.trial_rows, config.context.rng.permutation(rest)])
    affordable = max(len(trial), int(MAX_LEARNING_PATCHES / trial.vertex_counts.mean()))
    middle, last = min(affordable, MIDDLE_SIGNALS), min(affordable, MAX_LEARNING_SIGNALS)
    stages = [("trial", on_trial, 0.5), ("more", config.subset(order[:middle], n_inducing), 0.5)]
    if count <= last:
        if count > middle:
            stages.append(("all", replace(config, n_inducing=n_inducing), LAST_STAGE_SHARE))
    elif last > middle:
        stages.append(("most", config.subset(order[:last], n_inducing), LAST_STAGE_SHARE))
    return stages


def _optimize_in_stages(
    model: LearnedModel, config: LearnConfig, start: SearchPoint
) -> tuple[LearnedModel, SearchPoint]:
    """The best model of the last stage; if the user interrupts, the best so far.

    `start` is where searches for variance and likelihood start; where the next should start is returned.
    """
    history = config.context.history
    trial = config.data.gathered(config.trial_rows).signals
    stages = _stages(config, trial)
    interrupted = False
    try:
        initial = [model]
        if any(name in CENTER_PARAMETERS for name in config.names):
            history.stage = "zoom"
            initial, start = _neighborhoods(model, config, trial, start)
        for number, (name, part, share) in enumerate(stages):
            max_iter = max(1, round(share * config.learn.max_iter / len(initial)))
            results: list[tuple[float, LearnedModel]] = []
            for attempt, first in enumerate(initial):
                history.stage = name
                key = f"learn/{number}/{attempt}"
                after, value, interrupted = _optimize(first, part, trial, max_iter, key)
                results.append((value, after))
                if interrupted:
                    break
            model = max(results, key=lambda pair: pair[0])[1]
            initial = [model]
            if interrupted:
                break
    except KeyboardInterrupt:
        interrupted = True
    if interrupted:
        steps = len(history.steps)
        warnings.warn(f"learning was interrupted after {steps} steps; the best so far is kept", stacklevel=2)
    return model, start


def _neighborhoods(
    model: LearnedModel, config: LearnConfig, trial: Signals, start: SearchPoint
) -> tuple[list[LearnedModel], SearchPoint]:
    """Models to start from, the best first: with the best neighborhood size, and with default radii."""
    weightings = [spec.convolution.weighting for spec in model.specs]
    if any(weighting.zoomed(1.0) is None for weighting in weightings):
        return [model], start
    memory, rng = config.context.memory, config.context.rng

    def scored(weightings: Sequence[Weighting]) -> tuple[float, LearnedModel]:
        nonlocal start
        specs, lengthscales = [], []
        for spec, scales, weighting in zip(model.specs, model.lengthscales, weightings, strict=True):
            specs.append(spec.with_weighting(weighting, trial, memory, rng))
            lengthscales.append(_rescaled(scales, spec.medians, specs[-1].medians))
        inducing = config.trial.inducing(specs, lengthscales, rng)
        result = config.trial.score(specs, lengthscales, inducing, start)
        start = result.next_start
        config.context.history.add(-result.loss)
        noise = float(getattr(result.selected.likelihood, config.parameter))
        return result.loss, LearnedModel(specs, lengthscales, result.selected.variance, noise, model.inducing)

    zoomed: dict[SearchPoint, tuple[float, LearnedModel]] = {}

    def loss(point: SearchPoint) -> float:
        if abs(point[0]) > MAX_ZOOM_OCTAVES:
            return float("inf")
        factors = [weighting.zoomed(2 ** point[0]) for weighting in weightings]
        zoomed[point] = scored([weighting for weighting in factors if weighting is not None])
        return zoomed[point][0]

    best, _ = pattern_search(loss, (0.0,), [(step,) for step in ZOOM_STEPS_OCTAVES])
    candidates = [zoomed[best]]
    defaults = [with_default_radii(weighting, trial.domains) for weighting in weightings]
    if any(name in WIDTH_PARAMETERS for name in config.names) and all(defaults):
        candidates.append(scored([weighting for weighting in defaults if weighting is not None]))
    return [first for _, first in sorted(candidates, key=lambda pair: pair[0])], start


def _rescaled(scales: Lengthscales, before: Mapping[str, float], after: Mapping[str, float]) -> Lengthscales:
    """The same multiples of the median distances, for the columns that depend on the weighting."""
    return {
        name: scale if name == "position" else scale * (after[name] / before[name])
        for name, scale in scales.items()
    }


def _optimize(
    model: LearnedModel, config: LearnConfig, trial: Signals, max_iter: int, checkpoint_key: str
) -> tuple[LearnedModel, float, bool]:
    """Optimize on the signals of a stage, with inducing patches at vertices of the trial signals.

    Also returns the value of the objective, and whether the user has interrupted.
    """
    context, data, names = config.context, config.data, config.names
    scored_count = max(1, int((1 - INDUCING_SHARE) * len(trial)))
    terms, anchors, parameters = _trainable_terms(model, config, trial, scored_count)
    log_variance, log_noise = (
        torch.tensor(np.log(value), dtype=torch.float64, requires_grad=True)
        for value in (model.variance, model.noise)
    )
    for name, logarithm in (("variance", log_variance), (config.parameter, log_noise)):
        if name in names:
            parameters.append(scalar_parameter(name, logarithm))
    vector = Parameters(parameters)
    excluded = np.concatenate([config.trial_rows[: config.held_out], config.trial_rows[scored_count:]])
    available = np.setdiff1d(np.arange(data.count), excluded)
    scored = torch.from_numpy(np.sort(context.rng.permutation(available)[:MAX_OBJECTIVE_SIGNALS]))
    draws = normal_draws(data.groups, OBJECTIVE_SOFTMAX_DRAWS)
    objective = Objective(
        Features(terms, context.memory, context.device, config.trial.constant),
        data,
        config.trial.closed_form,
        log_noise,
        log_variance,
        vector,
        anchors,
        None if config.learn.objective == "bound" else Scored(scored, draws),
        OBJECTIVE_PATCH_DRAWS,
        seed=int(context.rng.integers(2**31)),
    )
    best, value, interrupted = maximize(
        objective,
        np.zeros(vector.size),
        bounds=vector.bounds,
        optimizer=config.learn.optimizer,
        max_iter=max_iter,
        history=context.history,
        checkpoint=context.checkpoint,
        checkpoint_key=checkpoint_key,
    )
    vector.set(best)
    specs = [
        replace(
            spec.with_weighting(
                term.convolution.weighting.requires_grad_(False), trial, context.memory, context.rng
            ),
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
    return learned, value, interrupted


def _trainable_terms(
    model: LearnedModel, config: LearnConfig, trial: Signals, scored: int
) -> tuple[list[Term], list[Anchors | None], list[TrainableParameter]]:
    """Terms with trainable parameters; anchors move inducing patches along with a trainable weighting."""
    names, rng = config.names, config.context.rng
    terms: list[Term] = []
    anchors: list[Anchors | None] = []
    parameters: list[TrainableParameter] = []
    for spec, scales in zip(model.specs, model.lengthscales, strict=True):
        giving = replace(spec, scored=scored)
        rows = giving.inducing_rows(scales, config.n_inducing, config.options.inducing, rng)
        rows = rows[spec.trial.vertices[rows].argsort()]
        term = spec.term(scales, spec.trial.values[rows])
        term, own = trainable_term(term, names, spec.columns)
        learned = [p.requires_grad for p in term.convolution.weighting.parameters()]
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
