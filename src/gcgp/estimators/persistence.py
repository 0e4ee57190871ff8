"""Saving and loading of fitted estimators, and of pipelines of descriptors and an estimator."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gcgp import __version__
from gcgp._runtime.memory import as_bytes
from gcgp.descriptors.spectral import SpectralDescriptor
from gcgp.domain import Domains
from gcgp.estimators.base import ConvolutionalGP
from gcgp.estimators.classifier import GCGPClassifier
from gcgp.estimators.options import Runtime, as_device
from gcgp.estimators.regressor import GCGPRegressor
from gcgp.estimators.value_range import checked_vertex_weights, largest_magnitude
from gcgp.inference import Features
from gcgp.inference.likelihoods import Likelihood
from gcgp.io import checks
from gcgp.io.classes import describe_object, find_class
from gcgp.io.container import errors_about, read_container, write_container
from gcgp.io.tensors import check_all_used, checked_tensor, take_prefix, with_prefix
from gcgp.io.terms import (
    as_domain_kind,
    as_signature,
    as_variance,
    describe_history,
    describe_term,
    rebuild_history,
    rebuild_posterior,
    rebuild_term,
)
from gcgp.io.values import parameter, plain_parameter, rebuild_labels, rebuild_parameters
from gcgp.selection.weightings import WEIGHTINGS
from gcgp.weighting import Weighting

ESTIMATORS: dict[str, type[ConvolutionalGP]] = {
    "GCGPClassifier": GCGPClassifier,
    "GCGPRegressor": GCGPRegressor,
}
MAX_PIPELINE_STEPS = 16
MAX_TERMS = 64
MAX_CONSTANT = 1e100
MAX_DESCRIPTOR = 1e100
MAX_MEAN_IN_DEVIATIONS = 1e17
"""Mean of a channel of a descriptor, in standard deviations: its square must be finite in float32."""
DESCRIPTOR_LIMITS = {
    "n_vectors": None,
    "n_times": None,
    "n_energies": None,
    "n_splines": 2_000,
    "eigenpairs": 10**5,
}
"""Largest values of the options of descriptors; None: the number of channels."""
COMMON_ATTRIBUTES: dict[str, checks.Check] = {
    "n_features_in_": partial(checks.as_integer, least=1),
    "domain_": as_domain_kind,
    "domain_signature_": as_signature,
    "likelihood_": parameter,
    "variance_": as_variance,
    "bound_": checks.as_number,
    "constant_": partial(checks.as_number, least=0.0, most=MAX_CONSTANT),
    "largest_value_": partial(checks.as_number, least=1.0, most=largest_magnitude("float64")),
    "history_": rebuild_history,
    "n_iter_": partial(checks.as_integer, least=1),
}
FITTED_ATTRIBUTES: dict[str, dict[str, checks.Check]] = {
    "GCGPClassifier": COMMON_ATTRIBUTES
    | {
        "classes_": rebuild_labels,
        "alpha_": as_variance,
        "softmax_weight_": partial(checks.as_number, least=0.0),
    },
    "GCGPRegressor": COMMON_ATTRIBUTES | {"noise_": as_variance, "intercept_": checks.as_number},
}
"""Fitted attributes of each estimator that the description contains, and how each is checked and rebuilt."""
DESCRIBE: dict[str, Callable[[Any], Any]] = {"history_": describe_history, "domain_signature_": dict}
"""Attributes that are not described as constructor arguments are."""


def save(model: Any, path: str | Path) -> None:
    """Write a fitted estimator to `path`, or a fitted `Pipeline` of descriptors and an estimator.

    An existing file is replaced only once the new one is complete. Of a pipeline the steps are saved, but not
    its cache; of the options all but the checkpoint, which is a path on this machine.
    """
    pipeline = type(model) is Pipeline
    steps: list[dict[str, Any]] = []
    tensors: dict[str, Tensor] = {}
    named = model.steps if pipeline else [("", model)]
    for i, (name, step) in enumerate(named):
        describe = _describe_estimator if i + 1 == len(named) else _describe_descriptor
        description, step_tensors = describe(f"step {name!r}: " if name else "", step)
        steps.append({"name": name, **description})
        tensors |= with_prefix(f"steps.{i}.", step_tensors)
    content = {"gcgp": __version__, "pipeline": pipeline, "steps": steps}
    with errors_about(path, "the model cannot be written, because it could not be read again"):
        _rebuild(json.loads(json.dumps(content)), dict(tensors))
    write_container(path, content, tensors)


def load(path: str | Path) -> Any:
    """Read an estimator or a pipeline that `save` has written. Its predictions are bit-identical.

    A file that is truncated, damaged, inconsistent or not a model file raises a ValueError with the path.
    Loading executes no code of the file, and takes no more memory than a few times its size. User-defined
    weightings, domains, likelihoods and the like are found if their module is imported. The runtime has no
    checkpoint, and the CPU as device if this machine lacks the saved one.
    """
    description, tensors = read_container(path)
    with errors_about(path, "not a valid gcgp model"):
        return _rebuild(description, tensors)


def _rebuild(description: Any, tensors: dict[str, Tensor]) -> Any:
    checks.as_object("model", description, ("gcgp", "pipeline", "steps"))
    checks.as_string("gcgp", description["gcgp"], 100)
    pipeline = checks.as_flag("pipeline", description["pipeline"])
    steps = checks.as_list("steps", description["steps"], 1, MAX_PIPELINE_STEPS if pipeline else 1)
    rebuilt: list[tuple[str, Any]] = []
    for i, step in enumerate(steps):
        rebuild = _rebuild_estimator if i + 1 == len(steps) else _rebuild_descriptor
        model = rebuild(f"steps[{i}]", step, take_prefix(tensors, f"steps.{i}."))
        name = checks.as_string(f"steps[{i}].name", step["name"])
        taken = {"steps", "memory", "verbose", "transform_input", *dict(rebuilt)}
        if (not name or "__" in name or name in taken) if pipeline else name:
            expected = "a unique name without '__'" if pipeline else "an empty name"
            raise checks.invalid(f"steps[{i}].name", name, expected)
        rebuilt.append((name, model))
    check_all_used("model", tensors)
    estimator = rebuilt[-1][1]
    if len(rebuilt) > 1 and (estimator.domain_, estimator.n_features_in_) != (
        "Meshes",
        len(rebuilt[-2][1].mean_),
    ):
        raise ValueError("the last step was not fitted to the signals of the descriptor before it")
    return Pipeline(rebuilt) if pipeline else estimator


def _describe_estimator(where: str, model: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    kind = type(model).__name__
    if ESTIMATORS.get(kind) is not type(model):
        raise ValueError(f"{where}a {kind} cannot be written to a model file, only {', '.join(ESTIMATORS)}")
    check_is_fitted(model, "posterior_")
    parameters = model.get_params(deep=False)
    terms: list[dict[str, Any]] = []
    tensors: dict[str, Tensor] = {}
    for i, term in enumerate(model.features_.terms):
        description, term_tensors = describe_term(term)
        terms.append(description)
        tensors |= with_prefix(f"terms.{i}.", term_tensors)
    tensors |= {"posterior.weights": model.posterior_.weights, "posterior.roots": model.posterior_.roots}
    fitted = {
        name: DESCRIBE.get(name, partial(plain_parameter, name))(getattr(model, name))
        for name in FITTED_ATTRIBUTES[kind]
    }
    description = describe_object(
        model, {name: plain_parameter(name, value) for name, value in parameters.items()}
    )
    if parameters["runtime"] is not None:
        description["parameters"]["runtime"]["parameters"]["checkpoint"] = None
    start = getattr(model, "start_weightings_", None)
    return description | {
        "fitted": fitted,
        "terms": terms,
        "start_weightings": plain_parameter("start_weightings_", start),
    }, tensors


def _rebuild_estimator(where: str, description: Any, tensors: dict[str, Tensor]) -> ConvolutionalGP:
    keys = ("name", "class", "parameters", "fitted", "terms", "start_weightings")
    checks.as_object(where, description, keys)
    kind = checks.as_choice(f"{where}.class", description["class"], ESTIMATORS)
    field, estimator_class = f"{where}.parameters", ESTIMATORS[kind]
    parameters = _portable(field, description["parameters"])
    estimator = estimator_class(**rebuild_parameters(field, estimator_class, parameters))
    runtime = _check_parameters(estimator)
    rules = FITTED_ATTRIBUTES[kind]
    fitted = checks.as_object(f"{where}.fitted", description["fitted"], rules)
    for name, check in rules.items():
        setattr(estimator, name, check(f"{where}.fitted.{name}", fitted[name]))
    facts = (Domains.kinds[estimator.domain_], estimator.domain_signature_, estimator.n_features_in_)
    terms = [
        rebuild_term(f"{where}.terms[{i}]", term, take_prefix(tensors, f"terms.{i}."), *facts)
        for i, term in enumerate(checks.as_list(f"{where}.terms", description["terms"], 1, MAX_TERMS))
    ]
    estimator.features_ = Features(terms, as_bytes(runtime.memory_limit), constant=estimator.constant_)
    estimator.posterior_ = rebuild_posterior(
        f"{where}.posterior",
        take_prefix(tensors, "posterior."),
        estimator.features_.size,
        estimator.variance_,
    )
    check_all_used(where, tensors)
    start = parameter(f"{where}.start_weightings", description["start_weightings"])
    if start is not None:
        if not isinstance(start, list) or [type(item) for item in start] != [
            type(item) for item in estimator.weightings_
        ]:
            raise ValueError(f"{where}.start_weightings: expected one weighting per term, of the same family")
        estimator.start_weightings_ = [weighting.requires_grad_(False) for weighting in start]
    _check_latents(where, estimator)
    return estimator


def _portable(where: str, parameters: Any) -> Any:
    """Described arguments whose runtime has no checkpoint, and a device that this machine has."""
    runtime = parameters.get("runtime") if isinstance(parameters, dict) else None
    fields = runtime.get("parameters") if isinstance(runtime, dict) else None
    if runtime is None or not isinstance(fields, dict):
        return parameters
    checks.as_scalar(f"{where}.runtime.checkpoint", fields.get("checkpoint"))
    device = fields.get("device", "cpu")
    if not isinstance(device, str) or not re.fullmatch(r"(?!meta)[a-z]{1,20}(:\d{1,3})?", device):
        raise checks.invalid(f"{where}.runtime.device", device, "the name of a device")
    local = fields | {"checkpoint": None, "device": device if _has_device(device) else "cpu"}
    return parameters | {"runtime": runtime | {"parameters": local}}


def _has_device(name: str) -> bool:
    try:
        as_device(name)
    except ValueError:
        return False
    return True


def _check_parameters(estimator: ConvolutionalGP) -> Runtime:
    """Raise unless `fit` would accept the constructor arguments; returns the runtime."""
    options, runtime = estimator._resolve_options()
    weightings = options.weighting if isinstance(options.weighting, (list, tuple)) else [options.weighting]
    for weighting in checks.as_list("weighting", list(weightings), 1, MAX_TERMS):
        if not isinstance(weighting, Weighting):
            checks.as_choice("weighting", weighting, WEIGHTINGS)
    checks.as_string("chart", options.chart, 100)
    if options.aggregate.vertex_weights is not None:
        checked_vertex_weights(options.aggregate.vertex_weights, torch.float64)
    if estimator.random_state is not None:
        checks.as_integer("random_state", estimator.random_state, 0, 2**32 - 1)
    return runtime


def _check_latents(where: str, estimator: ConvolutionalGP) -> None:
    """Raise unless there is one latent function per class and the likelihood maps them to probabilities."""
    latents = estimator.posterior_.weights.shape[1]
    likelihood = estimator.likelihood_
    if not isinstance(likelihood, Likelihood) or likelihood.task != estimator.task:
        raise checks.invalid(f"{where}.fitted.likelihood_", likelihood, f"a likelihood for {estimator.task}")
    classes = len(estimator.classes_) if isinstance(estimator, GCGPClassifier) else 1
    if classes != latents:
        raise ValueError(f"{where}: {latents} latent functions, expected {classes}")
    if isinstance(estimator, GCGPClassifier):
        zeros = torch.zeros(1, latents, dtype=torch.float64)
        probabilities = likelihood.probabilities(zeros, zeros + 1)
        if probabilities.shape != zeros.shape or not torch.isfinite(probabilities).all():
            raise ValueError(f"{where}.fitted.likelihood_: the probabilities are not finite")


def _describe_descriptor(where: str, descriptor: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not isinstance(descriptor, SpectralDescriptor):
        kind = type(descriptor).__name__
        raise ValueError(f"{where}a {kind} cannot be written to a model file, only a SpectralDescriptor")
    check_is_fitted(descriptor, "mean_")
    parameters = descriptor.get_params(deep=False)
    tensors = {
        name: torch.as_tensor(getattr(descriptor, name), dtype=torch.float64) for name in descriptor.fitted
    }
    return describe_object(
        descriptor, {name: plain_parameter(name, value) for name, value in parameters.items()}
    ), tensors


def _rebuild_descriptor(where: str, description: Any, tensors: dict[str, Tensor]) -> SpectralDescriptor:
    checks.as_object(where, description, ("name", "class", "parameters"), ("defined_in",))
    kind = find_class(where, description, SpectralDescriptor)
    descriptor = kind(**rebuild_parameters(f"{where}.parameters", kind, description["parameters"]))
    descriptor._validate_options()
    mean = checked_tensor(f"{where}.mean_", tensors.get("mean_"), (None,), torch.float64)
    for name, limit in DESCRIPTOR_LIMITS.items():
        if getattr(descriptor, name, None) is not None:
            most = len(mean) if limit is None else limit
            checks.as_integer(f"{where}.parameters.{name}", getattr(descriptor, name), 1, most)
    for name in descriptor.fitted:
        shape = () if name in ("band_", "width_") else mean.shape
        value = checked_tensor(f"{where}.{name}", tensors.pop(name, None), shape, torch.float64)
        positive = name not in ("mean_", "energies_")
        if not ((value.abs() <= MAX_DESCRIPTOR) & ((value >= 1 / MAX_DESCRIPTOR) | (not positive))).all():
            raise ValueError(f"{where}.{name}: values that are too large or too small")
        setattr(descriptor, name, value.numpy() if value.ndim else value.item())
    check_all_used(where, tensors)
    if not (np.abs(descriptor.mean_ / descriptor.deviation_) <= MAX_MEAN_IN_DEVIATIONS).all():
        raise ValueError(f"{where}.mean_: more than {MAX_MEAN_IN_DEVIATIONS:g} standard deviations")
    return descriptor
