"""Comparison of a selected model with the class frequencies, and warnings about choices with little data."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp.selection.lengthscales import Candidate
from gcgp.selection.trial import Trial

MAX_REQUIRED_GAIN, REQUIRED_SHARE = 6.0, 0.3
"""A model must predict left-out labels better than the class frequencies by this many nats in all, or by this
share of their loss if that is less. Smaller gains are common with labels that are pure noise."""
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


def frequency_model(trial: Trial, candidate: Candidate, rng: np.random.Generator) -> FrequencyModel | None:
    """The model of class frequencies if the candidate does not predict left-out labels better, else None.

    There is no comparison with fewer than three signals in a class, whose leave-one-out losses say little,
    nor with many signals, among which chance does not produce a large gain.
    """
    members = torch.bincount(trial.data.group, minlength=trial.data.groups)
    if trial.data.groups < 2 or trial.data.count > MAX_COMPARED or int(members.min()) < FEW_PER_CLASS:
        return None
    specs, lengthscales = candidate.specs, candidate.lengthscales
    inducing = candidate.inducing or trial.inducing(specs, lengthscales, rng)
    result = trial.score(specs, lengthscales, inducing, candidate.start)
    counts, labels = result.statistics.count, result.batch.labels
    assert labels is not None
    frequency_logs = class_frequency_logs(labels, counts)
    gain = float((result.logs(torch.arange(len(labels))) - frequency_logs).sum())
    if gain > min(MAX_REQUIRED_GAIN, -REQUIRED_SHARE * float(frequency_logs.sum())):
        return None
    likelihood, contrast = result.selected.likelihood, result.statistics.contrast()
    gap = float(likelihood.level(True)[0] - likelihood.level(False)[0])
    constant = CONSTANT_SHARE * contrast
    return FrequencyModel(constant, CONSTANT_VARIANCE * gap**2 / constant)


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


def _warn(message: str) -> None:
    warnings.warn(message, SelectionWarning, stacklevel=WARNING_STACK_LEVEL + 1)
