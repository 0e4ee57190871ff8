"""Saving and loading of fitted estimators, and of pipelines of descriptors and an estimator."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gcgp import __version__
from gcgp._runtime.memory import as_bytes
from gcgp.descriptors import SpectralDescriptor
from gcgp.domain import Domains
from gcgp.estimators.base import ConvolutionalGP
from gcgp.estimators.classifier import GCGPClassifier
from gcgp.estimators.options import as_device
from gcgp.estimators.regressor import GCGPRegressor
from gcgp.estimators.value_range import largest_magnitude
from gcgp.inference import Features
from gcgp.io import checks, terms, values
from gcgp.io.classes import find_class
from gcgp.io.container import errors_about, read_container, write_container
from gcgp.io.tensors import check_all_used, checked_tensor, take_prefix, with_prefix
from gcgp.selection.weightings import WEIGHTINGS
from gcgp.weighting import Weighting

ESTIMATORS: dict[str, type[ConvolutionalGP]] = {
    kind.__name__: kind for kind in (GCGPClassifier, GCGPRegressor)
}
MAX_PIPELINE_STEPS = 16
MAX_TERMS = 64
MAX_CONSTANT = 1e100
MAX_DESCRIPTOR = 1e100
MAX_MEAN_IN_DEVIATIONS = 1e17
"""Mean of a channel of a descriptor, in standard deviations: its square must be finite in float32."""
DESCRIPTOR_LIMITS = dict.fromkeys(("n_vectors", "n_times", "n_energies")) | {
    "n_splines": 2_000,
    "eigenpairs": 10**5,
}
"""Largest values of the options of descriptors; None: the number of channels."""
COMMON_ATTRIBUTES: dict[str, checks.Check] = {
    "n_features_in_": partial(checks.as_integer, least=1),
    "domain_": terms.as_domain_kind,
    "domain_signature_": terms.as_signature,
    "likelihood_": values.parameter,
    "variance_": terms.as_variance,
    "bound_": checks.as_number,
    "constant_": partial(checks.as_number, least=0.0, most=MAX_CONSTANT),
    "largest_value_": partial(checks.as_number, least=1.0, most=largest_magnitude("float64")),
    "history_": terms.rebuild_history,
    "n_iter_": partial(checks.as_integer, least=1),
    "start_weightings_": terms.rebuild_start_weightings,
}
FITTED_ATTRIBUTES: dict[str, dict[str, checks.Check]] = {
    "GCGPClassifier": {
        **COMMON_ATTRIBUTES,
        "classes_": values.rebuild_labels,
        "alpha_": terms.as_variance,
        "softmax_weight_": partial(checks.as_number, least=0.0),
    },
    "GCGPRegressor": {**COMMON_ATTRIBUTES, "noise_": terms.as_variance, "intercept_": checks.as_number},
}
"""The fitted attributes in the description of each estimator, and how they are checked and rebuilt."""
DESCRIBE: dict[str, Callable[[Any], Any]] = {"history_": terms.describe_history, "domain_signature_": dict}
"""How attributes are described that `plain_parameter` does not know."""
Described = tuple[dict[str, Any], dict[str, Tensor]]


def save(model: Any, path: str | Path) -> None:
    """Write a fitted estimator to `path`, or a fitted `Pipeline` of descriptors and an estimator.

    An existing file is replaced only once the new one is complete. Of a pipeline the steps are saved, but not
    its cache; of the options all but the checkpoint, which is a path on this machine.
    """
    pipeline = type(model) is Pipeline
    named = model.steps if pipeline else [("", model)]
    described = [
        (_describe_descriptor if i + 1 < len(named) else _describe_estimator)(name, step)
        for i, (name, step) in enumerate(named)
    ]
    content = {
        "gcgp": __version__,
        "names": [name for name, _ in named] if pipeline else None,
        "steps": [description for description, _ in described],
    }
    tensors: dict[str, Tensor] = {}
    for i, (_, step_tensors) in enumerate(described):
        tensors |= with_prefix(f"steps.{i}.", step_tensors)
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
    checks.as_object("model", description, ("gcgp", "names", "steps"))
    checks.as_string("gcgp", description["gcgp"], 100)
    steps, names = description["steps"], description["names"]
    count = len(checks.as_list("steps", steps, 1, 1 if names is None else MAX_PIPELINE_STEPS))
    models: list[Any] = [
        (_rebuild_descriptor if i + 1 < count else _rebuild_estimator)(
            f"steps[{i}]", step, take_prefix(tensors, f"steps.{i}.")
        )
        for i, step in enumerate(steps)
    ]
    check_all_used("model", tensors)
    domain, channels = models[-1].domain_, models[-1].n_features_in_
    if count > 1 and (domain, channels) != ("Meshes", len(models[-2].mean_)):
        raise ValueError("the last step was not fitted to the signals of the descriptor before it")
    if names is None:
        return models[0]
    reserved = {"", "steps", "memory", "verbose", "transform_input"}
    for i, name in enumerate(checks.as_list("names", names, count, count)):
        if "__" in checks.as_string(f"names[{i}]", name) or name in reserved.union(names[:i]):
            raise checks.invalid(f"names[{i}]", name, "a unique name without '__'")
    return Pipeline(list(zip(names, models, strict=True)))


def _describe_estimator(name: str, model: Any) -> Described:
    kind = type(model).__name__
    if ESTIMATORS.get(kind) is not type(model):
        step = f"step {name!r}: " if name else ""
        raise ValueError(f"{step}a {kind} cannot be written to a model file, only {', '.join(ESTIMATORS)}")
    check_is_fitted(model, "posterior_")
    description = values.describe_instance(model)
    if model.runtime is not None:
        description["parameters"]["runtime"]["parameters"]["checkpoint"] = None
    description["fitted"] = {
        name: DESCRIBE.get(name, partial(values.plain_parameter, name))(getattr(model, name, None))
        for name in FITTED_ATTRIBUTES[kind]
    }
    description["terms"], description["descriptor"] = [], None
    tensors = {"posterior.weights": model.posterior_.weights, "posterior.roots": model.posterior_.roots}
    if model.descriptor_ is not None:
        description["descriptor"], descriptor_tensors = _describe_descriptor("descriptor_", model.descriptor_)
        tensors |= with_prefix("descriptor.", descriptor_tensors)
    for i, term in enumerate(model.features_.terms):
        term_description, term_tensors = terms.describe_term(term)
        description["terms"].append(term_description)
        tensors |= with_prefix(f"terms.{i}.", term_tensors)
    return description, tensors


def _rebuild_estimator(where: str, description: Any, tensors: dict[str, Tensor]) -> ConvolutionalGP:
    checks.as_object(where, description, ("class", "parameters", "fitted", "terms", "descriptor"))
    name = checks.as_choice(f"{where}.class", description["class"], ESTIMATORS)
    field, kind, attributes = f"{where}.parameters", ESTIMATORS[name], FITTED_ATTRIBUTES[name]
    model: Any = kind(**values.rebuild_parameters(field, kind, _local(description["parameters"])))
    options, runtime = model._resolve_options()
    _check_weighting(options.weighting)
    check_random_state(model.random_state)
    fitted = checks.as_object(f"{where}.fitted", description["fitted"], attributes)
    for attribute, check in attributes.items():
        value = check(f"{where}.fitted.{attribute}", fitted[attribute])
        if value is not None:
            setattr(model, attribute, value)
    facts = (Domains.kinds[model.domain_], model.domain_signature_, model.n_features_in_)
    model_terms = [
        terms.rebuild_term(f"{where}.terms[{i}]", term, take_prefix(tensors, f"terms.{i}."), *facts)
        for i, term in enumerate(checks.as_list(f"{where}.terms", description["terms"], 1, MAX_TERMS))
    ]
    model.features_ = Features(model_terms, as_bytes(runtime.memory_limit), constant=model.constant_)
    model.descriptor_ = None
    if description["descriptor"] is not None:
        model.descriptor_ = _rebuild_descriptor(
            f"{where}.descriptor", description["descriptor"], take_prefix(tensors, "descriptor.")
        )
        if (model.domain_, model.n_features_in_) != ("Meshes", len(model.descriptor_.mean_)):
            raise ValueError(f"{where}: the model was not fitted to the signals of its descriptor")
    model.posterior_ = terms.rebuild_posterior(
        f"{where}.posterior", take_prefix(tensors, "posterior."), model.features_.size, model.variance_
    )
    check_all_used(where, tensors)
    latents, expected = model.posterior_.weights.shape[1], len(getattr(model, "classes_", [0]))
    if latents != expected:
        raise ValueError(f"{where}: {latents} latent functions, expected {expected}")
    likelihood = getattr(model, "likelihood_", None)
    terms.check_likelihood(f"{where}.fitted.likelihood_", likelihood, model.task, latents)
    return model


def _local(parameters: Any) -> Any:
    """Described arguments with a runtime without checkpoint, on the CPU if this machine lacks the device."""
    try:
        runtime = dict(parameters["runtime"])
        runtime["parameters"] = runtime["parameters"] | {"checkpoint": None}
    except (TypeError, LookupError, ValueError):
        return parameters  # no runtime, or an invalid one, which is reported when it is rebuilt
    try:
        as_device(runtime["parameters"].get("device", "cpu"))
    except ValueError:
        runtime["parameters"]["device"] = "cpu"
    return parameters | {"runtime": runtime}


def _check_weighting(option: Any) -> None:
    """Check the argument `weighting`, which `fit` resolves only when it knows the signals."""
    listed = list(option) if isinstance(option, (list, tuple)) else [option]
    for weighting in checks.as_list("weighting", listed, 1, MAX_TERMS):
        if not isinstance(weighting, Weighting):
            checks.as_choice("weighting", weighting, WEIGHTINGS)


def _describe_descriptor(name: str, descriptor: Any) -> Described:
    if not isinstance(descriptor, SpectralDescriptor):
        kind = type(descriptor).__name__
        raise ValueError(f"step {name!r}: a {kind} cannot be written to a model file, only a descriptor")
    check_is_fitted(descriptor, "mean_")
    arrays = {name: np.asarray(getattr(descriptor, name), dtype=np.float64) for name in descriptor.fitted}
    return values.describe_instance(descriptor), {k: torch.from_numpy(array) for k, array in arrays.items()}


def _rebuild_descriptor(where: str, description: Any, tensors: dict[str, Tensor]) -> SpectralDescriptor:
    checks.as_object(where, description, ("class", "parameters"), ("defined_in",))
    kind = find_class(where, description, SpectralDescriptor)
    descriptor = kind(**values.rebuild_parameters(f"{where}.parameters", kind, description["parameters"]))
    descriptor.validate()
    mean = checked_tensor(f"{where}.mean_", tensors.get("mean_"), (None,), torch.float64)
    for name, limit in DESCRIPTOR_LIMITS.items():
        if getattr(descriptor, name, None) is not None:
            limits = (1, limit) if limit else (len(mean), len(mean))
            checks.as_integer(f"{where}.parameters.{name}", getattr(descriptor, name), *limits)
    for name, spec in descriptor.fitted.items():
        shape = mean.shape if spec.per_channel else ()
        value = checked_tensor(f"{where}.{name}", tensors.pop(name, None), shape, torch.float64)
        least = 1 / MAX_DESCRIPTOR if spec.positive else -MAX_DESCRIPTOR
        if not ((value >= least) & (value <= MAX_DESCRIPTOR)).all():
            raise ValueError(f"{where}.{name}: values that are too large or too small")
        setattr(descriptor, name, value.numpy() if value.ndim else value.item())
    check_all_used(where, tensors)
    if not (np.abs(descriptor.mean_ / descriptor.std_) <= MAX_MEAN_IN_DEVIATIONS).all():
        raise ValueError(f"{where}.mean_: more than {MAX_MEAN_IN_DEVIATIONS:g} standard deviations")
    return descriptor
