"""The arguments `inference` and `likelihood` of estimators."""

from __future__ import annotations

from typing import Any

from gcgp._runtime.options import resolve_option
from gcgp.inference.likelihoods import LIKELIHOODS, Likelihood
from gcgp.inference.method import InferenceMethod
from gcgp.inference.methods import METHODS


def resolve_inference(value: Any) -> InferenceMethod:
    """The inference method that an estimator's argument `inference` stands for."""
    method: InferenceMethod = resolve_option("inference", value, InferenceMethod, METHODS)
    return method


def resolve_likelihood(value: Any, method: InferenceMethod, task: str) -> Likelihood:
    """The likelihood that an estimator's argument `likelihood` stands for, if the method supports it."""
    supported = [name for name in method.likelihoods if LIKELIHOODS[name].task == task]
    if not supported:
        known = [n for n, m in METHODS.items() if any(LIKELIHOODS[x].task == task for x in m.likelihoods)]
        raise ValueError(f"inference={method!r} does not support {task}; expected one of {known}")
    if isinstance(value, str) and value == "auto":
        return method.default_likelihood(task)
    likelihood: Likelihood = resolve_option("likelihood", value, Likelihood, LIKELIHOODS)
    if likelihood.name not in supported:
        raise ValueError(
            f"likelihood={value!r} does not work with inference={method!r}; expected one of {supported}"
        )
    return likelihood
