"""Learning the model's numbers: from the drafts of a fit to drafts with better weightings and kernels.

First, where the weighting's distances are to be learned, a search for the best common factor of all of them:
gradients alone do not find their way out of a neighborhood that is far too small. Then climbs on the
trial signals with few inducing patches, from there and from the radii that our own rule gives; from the
better one on to more signals with all inducing patches, and to all signals, if these are not very many.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._runtime.errors import unknown_option
from gcgp.domain import Signals
from gcgp.inference.features import Features, Term
from gcgp.inference.parameters import (
    Parameters,
    TrainableParameter,
    learnable_names,
    scalar_parameter,
    term_parameters,
)
from gcgp.inference.search import SearchPoint, pattern_search
from gcgp.kernel import RotationAverage
from gcgp.selection.job import Job
from gcgp.selection.objective import Anchors, ClosedForm, Objective, Scored
from gcgp.selection.optimizer import Step, maximize
from gcgp.selection.term_specs import Lengthscales, TermSpec, natural_radii
from gcgp.selection.tuning import TrialLoss
from gcgp.weighting import Radial, Weighting
from gcgp.weighting.base import CENTERS, WIDTHS

OBJECTIVES = ("auto", "leave-one-out", "bound")
DEFAULT = ("lengthscale", "variance", "radii", "radial_width", "along", "across", "means", "scales")
"""What `learn=True` learns, where the model has it; beside it noise or α_ε, which no rule gives as well."""
ZOOM_STEPS = (1.0, 0.5)
"""log2 of the factor between two neighborhoods that are compared, first and then."""
GIVING = 0.2
"""Part of the trial signals that gives inducing patches; a maximize is scored on other signals."""
MOST_SCORED = 4_000
"""Signals that are left out in turn to score a model."""
MOST_ZOOM = 3.0
ROOM_TO_GROW = 1.3
"""How much further charts reach than the bins do at the start of a maximize."""
MIDDLE_SIGNALS = 4_000
"""Signals of the maximize between that on the trial signals and that on all."""
MOST_SIGNALS = 20_000
"""Signals of the last maximize: more take long and change little."""
MOST_PATCHES = 2_000_000
"""And as many signals of any maximize as have so many patches."""
FULL_SHARE = 0.1
"""Part of the iterations that may be spent on these at the end."""


@dataclass(frozen=True)
class LearnConfig:
    """The signals to learn from, how they are scored, and how to maximize."""

    job: Job
    trial: Int[np.ndarray, "n"]
    """Numbers of the trial signals, on which drafts are made; the first of them are scored."""
    held: int
    """So many of the first are not scored by climbs, but tell at the end whether these were worth it."""
    likelihood: ClosedForm
    likelihood_parameter: str
    """`alpha` or `noise`."""
    softmax_draws: Float[Tensor, "draws C"]
    names: Sequence[str]
    """What is learned."""
    by_bound: bool
    optimizer: str
    max_iter: int
    inducing: int
    trial_inducing: int
    method: str
    diagonal_draws: int

    def part(self, rows: Int[np.ndarray, "n"], inducing: int) -> LearnConfig:
        """The task on some of the signals, of which the trial signals are the first."""
        return replace(self, job=self.job.part(rows), trial=np.arange(len(self.trial)), inducing=inducing)


@dataclass(frozen=True)
class State:
    """What has been learned so far."""

    drafts: Sequence[TermSpec]
    scales: Sequence[Lengthscales]
    variance: float
    noise: float
    inducing: Sequence[Float[Tensor, "M dim"]] | None = None
    """Inducing patches that were themselves learned."""


def names_to_learn(option: Any, likelihood_parameter: str) -> tuple[str, ...]:
    """The names that the estimator's option `learn` stands for; see `check_names` for whether they exist."""
    if option is True:
        return (*DEFAULT, likelihood_parameter)
    if option is False or option is None:
        return ()
    if not isinstance(option, Iterable):
        raise TypeError(f"learn={option!r}: expected True, False, a name, or a list of names")
    names = (option,) if isinstance(option, str) else tuple(option)
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"learn={option!r}: {name!r} is not a name of something to learn")
    return names


def check_names(option: Any, state: State, likelihood_parameter: str) -> None:
    """Raise a ValueError that lists what can be learned if a name is not among it."""
    known = {"variance", likelihood_parameter}
    for draft, scales in zip(state.drafts, state.scales, strict=True):
        term = draft.term(scales, draft.trial.values[:1])
        known |= set(learnable_names(term, draft.columns, isinstance(draft.kernel, str)))
    if option is not True:
        for name in names_to_learn(option, likelihood_parameter):
            if name not in known:
                raise unknown_option("learn", name, tuple(sorted(known)))


def learn(state: State, task: LearnConfig, loss: TrialLoss) -> State:
    """Zoom, maximize on the trial signals, maximize on all; if the user interrupts, the best so far is kept."""
    trial = task.job.everywhere(task.trial).signals
    parts = [("trial", task.part(task.trial, task.trial_inducing), 1.0)]
    if task.job.count > len(trial):
        others = np.setdiff1d(np.arange(task.job.count), task.trial)
        order = np.concatenate([task.trial, task.job.rng.permutation(others)])
        fitting = max(len(trial), int(MOST_PATCHES / trial.vertex_counts.mean()))
        middle, most = min(fitting, MIDDLE_SIGNALS), min(fitting, MOST_SIGNALS)
        parts = [
            (parts[0][0], parts[0][1], 0.5),
            ("more", task.part(order[:middle], task.inducing), 0.5),
        ]
        if task.job.count <= most:
            parts += [("all", task, FULL_SHARE)] if task.job.count > middle else []
        elif most > middle:
            parts.append(("most", task.part(order[:most], task.inducing), FULL_SHARE))
    interrupted = False
    try:
        starts = [state]
        if any(name in CENTERS for name in task.names):
            task.job.history.stage = "zoom"
            starts = _neighborhoods(state, task, trial, loss)
        for stage, part, share in parts:
            iterations = max(1, round(share * task.max_iter / len(starts)))
            climbed = []
            for attempt, start in enumerate(starts):
                task.job.history.stage = stage
                after, value, interrupted = _climbed(
                    start, replace(part, max_iter=iterations), trial, attempt
                )
                climbed.append((value, after))
                if interrupted:
                    break
            state = max(climbed, key=lambda pair: pair[0])[1]
            starts = [state]
            if interrupted:
                break
    except KeyboardInterrupt:
        interrupted = True
    if interrupted:
        steps = len(task.job.history.steps)
        warnings.warn(f"learning was interrupted after {steps} steps; the best so far is kept", stacklevel=2)
    return state


def _neighborhoods(state: State, task: LearnConfig, trial: Signals, loss: TrialLoss) -> list[State]:
    """Weightings to start from, the best first: of the best size, and with the radii of our own rule."""
    weightings = [draft.convolution.weighting for draft in state.drafts]
    if any(weighting.zoomed(1.0) is None for weighting in weightings):
        return [state]

    def tried(weightings: Sequence[Weighting]) -> tuple[float, State]:
        drafts, scales = [], []
        for draft, own, weighting in zip(state.drafts, state.scales, weightings, strict=True):
            drafts.append(draft.remade(weighting, trial, task.job.memory, task.job.rng))
            scales.append(_rescaled(own, draft.medians, drafts[-1].medians))
        result = loss(drafts, scales)
        task.job.history.add(-result)
        assert loss.choice is not None
        noise = getattr(loss.choice.likelihood, task.likelihood_parameter)
        return result, replace(
            state, drafts=drafts, scales=scales, variance=loss.choice.variance, noise=noise
        )

    known: dict[SearchPoint, tuple[float, State]] = {}

    def of_size(point: SearchPoint) -> float:
        if abs(point[0]) > MOST_ZOOM:
            return float("inf")
        known[point] = tried([_of_size(weighting, 2 ** point[0]) for weighting in weightings])
        return known[point][0]

    best, _ = pattern_search(of_size, (0.0,), [(step,) for step in ZOOM_STEPS])
    candidates = [known[best]]
    by_rule = [_by_rule(weighting, trial) for weighting in weightings]
    if any(name in WIDTHS for name in task.names) and all(by_rule):
        candidates.append(tried([weighting for weighting in by_rule if weighting is not None]))
    return [start for _, start in sorted(candidates, key=lambda pair: pair[0])]


def _rescaled(scales: Lengthscales, before: Mapping[str, float], after: Mapping[str, float]) -> Lengthscales:
    """The same multiples of the median distances, for the columns that depend on the weighting."""
    return {
        name: scale if name == "position" else scale * (after[name] / before[name])
        for name, scale in scales.items()
    }


def _of_size(weighting: Weighting, factor: float) -> Weighting:
    zoomed = weighting.zoomed(factor)
    assert zoomed is not None
    return zoomed


def _by_rule(weighting: Weighting, signals: Signals) -> Weighting | None:
    """The weighting with as many radii as it has, where our own rule puts them; None: it has no rings.

    A weighting with a bin at the center keeps it.
    """
    if not isinstance(weighting, Radial):
        return None
    count, centered = len(weighting.radii), float(weighting.radii.detach().abs().min()) == 0.0
    if centered and count == 1:
        return None
    radii, width = natural_radii(signals, count - centered)
    return weighting.with_radii([0.0] * centered + radii, width)


def loosened(
    term: Term, names: Sequence[str], columns: dict[str, slice]
) -> tuple[Term, list[TrainableParameter]]:
    """The term with a weighting of its own, and the knobs of what is to be learned of it."""
    weighting = copy.deepcopy(term.convolution.weighting)
    convolution = replace(term.convolution, weighting=weighting, reach=ROOM_TO_GROW * weighting.reach)
    term = replace(term, convolution=convolution, inducing=term.inducing.clone())
    knobs = term_parameters(term, names, columns)
    for knob in knobs:
        knob.tensor.requires_grad_(True)
    return term, knobs


def fastened(term: Term) -> Term:
    """The term as it is now, with nothing to be learned of it."""
    weighting = term.convolution.weighting.requires_grad_(False)
    convolution = replace(term.convolution, weighting=weighting, reach=None)
    return replace(
        term,
        convolution=convolution,
        kernel=term.kernel.requires_grad_(False),
        inducing=term.inducing.detach(),
    )


def _climbed(state: State, task: LearnConfig, trial: Signals, attempt: int) -> tuple[State, float, bool]:
    """One maximize on the task's signals, from inducing patches at vertices of the trial signals.

    Also the value that it came to, and whether the user has interrupted it.
    """
    terms: list[Term] = []
    anchors: list[Anchors | None] = []
    knobs: list[TrainableParameter] = []
    count = max(1, int((1 - GIVING) * len(trial)))
    for draft, scales in zip(state.drafts, state.scales, strict=True):
        rows = replace(draft, scored=count).inducing_rows(scales, task.inducing, task.method, task.job.rng)
        rows = rows[draft.trial.vertices[rows].argsort()]
        term = draft.term(scales, draft.trial.values[rows])
        term, own = loosened(term, task.names, draft.columns)
        learned = [p.requires_grad for p in term.convolution.weighting.parameters()]
        fixed = "inducing" in task.names or not any(learned)
        anchors.append(None if fixed else _anchors(trial, draft.trial.vertices[rows]))
        terms.append(term)
        knobs += own
    log_variance, log_noise = (
        torch.tensor(np.log(value), dtype=torch.float64, requires_grad=True)
        for value in (state.variance, state.noise)
    )
    for name, logarithm in (("variance", log_variance), (task.likelihood_parameter, log_noise)):
        if name in task.names:
            knobs.append(scalar_parameter(name, logarithm))
    parameters = Parameters(knobs)
    apart = np.concatenate([task.trial[: task.held], task.trial[count:]])
    others = np.setdiff1d(np.arange(task.job.count), apart)
    scored = torch.from_numpy(np.sort(task.job.rng.permutation(others)[:MOST_SCORED]))
    objective = Objective(
        Features(terms, task.job.memory, task.job.device, task.job.constant),
        task.job.signals,
        task.job.group,
        task.job.targets,
        task.job.groups,
        task.likelihood,
        log_noise,
        log_variance,
        parameters,
        anchors,
        None if task.by_bound else Scored(scored, task.softmax_draws),
        task.diagonal_draws,
        seed=int(task.job.rng.integers(2**31)),
        processes=task.job.processes,
        first=task.job.first,
        count=task.job.count,
    )
    best, value, interrupted = maximize(
        objective,
        np.zeros(parameters.size),
        bounds=parameters.bounds,
        optimizer=task.optimizer,
        max_iter=task.max_iter,
        history=task.job.history,
        checkpoint=task.job.checkpoint,
        stage=f"{task.job.history.stage} {attempt}",
    )
    parameters.set(best)
    drafts = [
        replace(
            draft.remade(
                term.convolution.weighting.requires_grad_(False), trial, task.job.memory, task.job.rng
            ),
            kernel=draft.kernel if isinstance(draft.kernel, str) else _unpooled(term.kernel.base),
            vertex_weights=_detached(term.kernel.vertex_weights),
        )
        for draft, term in zip(state.drafts, terms, strict=True)
    ]
    after = State(
        drafts,
        [
            draft.read_lengthscales(term.kernel.base, scales)
            for draft, term, scales in zip(drafts, terms, state.scales, strict=True)
        ],
        float(log_variance.detach().exp()),
        float(log_noise.detach().exp()),
        [term.inducing.detach() for term in terms] if "inducing" in task.names else None,
    )
    return after, value, interrupted


def _detached(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()


def _unpooled(kernel: Kernel) -> Kernel:
    return (kernel.base_kernel if isinstance(kernel, RotationAverage) else kernel).requires_grad_(False)


def _anchors(signals: Signals, vertices: Int[Tensor, "M"]) -> Anchors:
    """Anchors on those signals alone that have some of the vertices."""
    numbers = np.searchsorted(signals.offsets, vertices.numpy(), side="right") - 1
    used, place = np.unique(numbers, return_inverse=True)
    some = signals[used]
    return Anchors(some, torch.from_numpy(vertices.numpy() - signals.offsets[numbers] + some.offsets[place]))


def step_logger(verbose: bool) -> Callable[[Step], None]:
    """Who prints a line on the error stream for each step, if that is wanted."""
    if not verbose:
        return lambda step: None

    def tell(step: Step) -> None:
        line = (
            f"{step.iteration:4d}  {step.stage:<8}  {step.value:10.4f} nats a signal  {step.seconds:7.1f} s"
        )
        print(line, file=sys.stderr, flush=True)

    return tell
