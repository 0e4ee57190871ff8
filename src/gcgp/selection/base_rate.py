"""Comparison of a selected model with the class frequencies, and warnings about choices with little data."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.selection.lengthscales import MAX_OCTAVES_FROM_MEDIAN, Candidate
from gcgp.selection.options import ModelOptions
from gcgp.selection.search import Evaluation, SearchResult
from gcgp.selection.trial import TrialResult

REQUIRED_GAIN, REQUIRED_SHARE = 10.0, 0.45
"""Nats by which the default configuration must predict left-out labels better than the class frequencies, all
labels together; or this share of the loss of the class frequencies, if that is less.

With 40 labels that are pure noise, 1 % of fits have a larger gain.
"""
REQUIRED_GAIN_OF_SEARCH, REQUIRED_SHARE_OF_SEARCH = 20.0, 0.75
"""The same for the best of all configurations that were compared."""
FULL_GAIN_SIGNALS, MIN_GAIN_FACTOR = 80, 0.3
"""With more signals than this, the required gain falls inversely to their number, down to a factor.

Gains by chance become smaller: with 250 permuted labels of molecules, 18 fits of the default configuration
gained up to 1.4 nats, and the best configurations up to 2.2.
"""
MAX_COMPARED = 1_000
CONSTANT_SHARE = 1e7
"""Variance of the constant term relative to the differences between signals, if only frequencies count."""
CONSTANT_VARIANCE = 10.0
"""Its variance relative to the squared distance of the targets: frequencies are hardly shrunk."""
FEW_PER_CLASS = 3
WARNING_STACK_LEVEL = 5
"""Frames from the warning up to the call of `fit`."""


class SelectionWarning(UserWarning):
    """A choice rests on little data, or the data do not support any model."""


@dataclass(frozen=True)
class FrequencyModel:
    """Constant term and GP variance of a model that predicts the class frequencies for all signals."""

    constant: float
    variance: float


def class_frequency_logs(labels: Int[Tensor, "n"], counts: Float[Tensor, "C"]) -> Float[Tensor, "n"]:
    """Leave-one-out log probabilities of labels under the class frequencies.

    Half a signal is added per class.

    >>> class_frequency_logs(torch.tensor([0, 1]), torch.tensor([3.0, 1.0])).exp()
    tensor([0.6250, 0.1250])
    """
    return ((counts[labels] - 0.5) / (counts.sum() - 1 + 0.5 * len(counts))).log()


def frequency_model(search: SearchResult, rng: np.random.Generator) -> FrequencyModel | None:
    """The model of class frequencies if no candidate predicts left-out labels better, else None.

    The selected candidate has to be much better or, since it is the best of many, the default configuration
    has to be better. There is no comparison with fewer than three signals in a class, whose leave-one-out
    losses say little, nor with many signals, among which chance does not produce a large gain.
    """
    data = search.best.trial.data
    members = torch.bincount(data.group, minlength=data.groups)
    if data.groups < 2 or data.count > MAX_COMPARED or int(members.min()) < FEW_PER_CLASS:
        return None
    if _gain_is_obvious(search.default):
        return None
    result = _score(search.default, rng)
    if _gain_exceeds(result, REQUIRED_GAIN, REQUIRED_SHARE):
        return None
    if search.best is not search.default:
        result = _score(search.best, rng)
        if _gain_exceeds(result, REQUIRED_GAIN_OF_SEARCH, REQUIRED_SHARE_OF_SEARCH):
            return None
    likelihood, contrast = result.selected.likelihood, result.statistics.contrast()
    gap = float(likelihood.level(True)[0] - likelihood.level(False)[0])
    constant = CONSTANT_SHARE * contrast
    return FrequencyModel(constant, CONSTANT_VARIANCE * gap**2 / constant)


def _score(evaluation: Evaluation, rng: np.random.Generator) -> TrialResult:
    candidate, trial = evaluation.candidate, evaluation.trial
    specs, lengthscales = candidate.specs, candidate.lengthscales
    inducing = candidate.inducing or trial.inducing(specs, lengthscales, rng)
    return trial.score(specs, lengthscales, inducing, candidate.start)


def _gain_is_obvious(evaluation: Evaluation) -> bool:
    """Whether the penalized loss of the search already shows more than the required gain."""
    candidate, data = evaluation.candidate, evaluation.trial.data
    if candidate.inducing is None:
        return False
    counts = torch.bincount(data.group, minlength=data.groups).double()
    scored = data.group[: candidate.specs[0].scored]
    frequency_loss = -float(class_frequency_logs(scored, counts).sum())
    return frequency_loss - candidate.loss * len(scored) > REQUIRED_GAIN_OF_SEARCH


def _gain_exceeds(result: TrialResult, required: float, share: float) -> bool:
    """Whether left-out labels are predicted better than by the class frequencies, by the required gain."""
    labels = result.batch.labels
    assert labels is not None
    frequency_logs = class_frequency_logs(labels, result.statistics.count)
    gain = float((result.logs(torch.arange(len(labels))) - frequency_logs).sum())
    factor = min(1.0, max(FULL_GAIN_SIGNALS / len(labels), MIN_GAIN_FACTOR))
    return gain > min(factor * required, -share * float(frequency_logs.sum()))


def warn_about_selection(counts: Int[np.ndarray, "C"], frequencies: FrequencyModel | None) -> None:
    """Warn if only class frequencies are predicted, or a class has fewer than three signals."""
    if frequencies is not None:
        _warn(
            f"y: no model predicts left-out labels of the {int(counts.sum())} training signals better than "
            "the class frequencies, so these are predicted. Check labels and values, or add training signals."
        )
    elif len(counts) > 1 and float(counts.min()) < FEW_PER_CLASS:
        _warn(
            f"y: a class has {int(counts.min())} training signals; with fewer than {FEW_PER_CLASS} per class "
            "variance, lengthscale and α_ε rest mostly on their priors, and probabilities may be inaccurate"
        )


def warn_about_bounds(candidate: Candidate, options: ModelOptions) -> None:
    """Warn if a parameter that was searched ended at a bound of its search."""
    names = options.likelihood.closed_form().reached_bounds(candidate.start)
    if options.variance is not None:
        names = [name for name in names if name != "variance"]
    # Lengthscales beyond the upper bound hardly differ: functions are nearly linear.
    reached = [octaves <= -MAX_OCTAVES_FROM_MEDIAN for octaves in candidate.at]
    if isinstance(options.kernel.lengthscale, str) and reached[0]:
        names.append("lengthscale")
    if "position" in candidate.specs[0].columns and reached[1]:
        names.append("position")
    if names:
        _warn(
            f"y: the search ended at a bound of {' and '.join(names)}, so the training signals do not "
            "determine it. Add training signals, or pass a value that you know."
        )


def _warn(message: str) -> None:
    warnings.warn(message, SelectionWarning, stacklevel=WARNING_STACK_LEVEL + 1)
