"""Models from descriptions and tensors. Everything is checked before it is built; errors name the field."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.pipeline import Pipeline
from torch import Tensor

from gcgp.descriptors.spectral import GeometryVectors, HeatKernelSignature, WaveKernelSignature
from gcgp.estimators.base import check_positive
from gcgp.estimators.estimators import GCGPClassifier, GCGPRegressor
from gcgp.estimators.fitting import DTYPES
from gcgp.estimators.validation import as_bytes, as_device
from gcgp.inference import Features, Posterior, Term
from gcgp.io.checked_json import (
    as_choice,
    as_flag,
    as_integer,
    as_list,
    as_numbers,
    as_object,
    as_text,
    invalid,
)
from gcgp.io.kernels import build, check, load_state
from gcgp.io.model_check import (
    CHARTS,
    FITTED,
    MAX_STEPS,
    MAX_TERMS,
    check_columns,
    check_descriptor,
    check_fitted,
    check_history,
    check_inducing,
    check_posterior,
    check_root,
    check_step_names,
    check_term_options,
    checked_tensor,
)
from gcgp.io.model_values import checked_weighting, labels, parameter
from gcgp.kernel import ConvolutionalKernel
from gcgp.patches import Convolution
from gcgp.selection.optimizer import Step
from gcgp.selection.term_specs import WEIGHTINGS
from gcgp.selection.variational import LIKELIHOODS
from gcgp.weighting import Weighting

ESTIMATORS: dict[str, Any] = {kind.__name__: kind for kind in (GCGPClassifier, GCGPRegressor)}
DESCRIPTORS: dict[str, Any] = {
    kind.__name__: kind for kind in (GeometryVectors, HeatKernelSignature, WaveKernelSignature)
}
TERM = (
    "weighting",
    "chart",
    "bin_counts",
    "position",
    "area_weighted",
    "dtype",
    "aggregate",
    "base",
    "jitter",
)
SCALARS = (str, bool, int, float, type(None))
NOT_SCALAR: dict[str, tuple[type, ...]] = {
    "weighting": (Weighting, list),
    "kernel": (Kernel,),
    "vertex_weights": (np.ndarray, list),
    "learn": (np.ndarray, list),
}
"""What else than a number or a text an option may be."""


def rebuilt(description: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The model of a description and its tensors; raises if they do not fit together."""
    as_object("model", description, ("gcgp", "pipeline", "steps"))
    as_text("gcgp", description["gcgp"], 100)
    pipeline = as_flag("pipeline", description["pipeline"])
    steps = as_list("steps", description["steps"], 1, MAX_STEPS if pipeline else 1)
    remaining = dict(tensors)
    made = []
    for i, step in enumerate(steps):
        last = i + 1 == len(steps)
        own = _taken(remaining, f"steps.{i}.")
        make = _rebuilt_estimator if last else _rebuilt_descriptor
        made.append(make(f"steps[{i}]", step, own))
    check_step_names(steps, pipeline)
    if remaining:
        raise ValueError(f"the stored tensor {min(remaining)!r} belongs to no part of the model")
    described = len(made) > 1
    if described and (made[-1].domain_, made[-1].channels_) != ("Meshes", len(made[-2].mean_)):
        raise ValueError("the last step was not fitted to the signals of the descriptor before it")
    names = [step["name"] for step in steps]
    return Pipeline(list(zip(names, made, strict=True))) if pipeline else made[0]


def _rebuilt_descriptor(where: str, description: Any, tensors: dict[str, Tensor]) -> Any:
    as_object(where, description, ("name", "class", "parameters"))
    kind = DESCRIPTORS[as_choice(f"{where}.class", description["class"], tuple(DESCRIPTORS))]
    descriptor = kind(**_parameters(where, kind, description["parameters"]))
    descriptor._validate_options()
    check_descriptor(where, descriptor, tensors)
    for key in descriptor.fitted:
        value = tensors[key]
        setattr(descriptor, key, value.numpy() if value.ndim else value.item())
    return descriptor


def _rebuilt_estimator(where: str, description: Any, tensors: dict[str, Tensor]) -> Any:
    as_object(
        where,
        description,
        ("name", "class", "parameters", "fitted", "history", "terms"),
        ("start", "classes"),
    )
    kind = as_choice(f"{where}.class", description["class"], tuple(ESTIMATORS))
    check_fitted(f"{where}.fitted", description["fitted"], FITTED[kind])
    check_history(f"{where}.history", description["history"])
    parameters = _parameters(where, ESTIMATORS[kind], description["parameters"])
    parameters |= {"device": _usable(parameters.get("device", "cpu")), "checkpoint": None}
    estimator = ESTIMATORS[kind](**parameters)
    _check_options(estimator)
    for key in FITTED[kind]:
        value = description["fitted"][key]
        setattr(estimator, key, tuple(value) if isinstance(value, list) else value)
    terms = [
        _rebuilt_term(f"{where}.terms[{i}]", term, _taken(tensors, f"terms.{i}."), description["fitted"])
        for i, term in enumerate(as_list(f"{where}.terms", description["terms"], 1, MAX_TERMS))
    ]
    memory = as_bytes(estimator.memory_limit)
    estimator.features_ = Features(terms, memory, constant=estimator.constant_)
    posterior = _taken(tensors, "posterior.")
    size = estimator.features_.size
    latents = check_posterior(f"{where}.posterior", posterior, size, estimator.variance_)
    estimator.posterior_ = Posterior(estimator.variance_, posterior["weights"], posterior["roots"])
    estimator.history_ = [Step(*learned) for learned in description["history"]]
    if "start" in description:
        estimator.start_weightings_ = [
            checked_weighting(f"{where}.start[{i}]", start, _taken(tensors, f"start.{i}."))
            for i, start in enumerate(as_list(f"{where}.start", description["start"], len(terms), len(terms)))
        ]
    if isinstance(estimator, GCGPClassifier):
        estimator.classes_ = labels(f"{where}.classes", description.get("classes"), latents)
    elif latents != 1 or "classes" in description:
        raise ValueError(f"{where}: a regressor with classes, or with {latents} latent functions")
    if tensors:
        raise ValueError(f"{where}: the stored tensor {min(tensors)!r} belongs to no part of the model")
    return estimator


def _parameters(where: str, kind: Any, parameters: Any) -> dict[str, Any]:
    """The constructor arguments of an estimator or a descriptor."""
    known = tuple(inspect.signature(kind).parameters)
    as_object(f"{where}.parameters", parameters, (), known)
    rebuilt = {key: parameter(f"{where}.parameters.{key}", value) for key, value in parameters.items()}
    for key, value in rebuilt.items():
        if not isinstance(value, SCALARS) and not isinstance(value, NOT_SCALAR.get(key, ())):
            raise invalid(f"{where}.parameters.{key}", value, "another kind of value")
    return rebuilt


def _check_options(estimator: Any) -> None:
    """Raise unless `fit` would accept the options."""
    estimator._validate_options()
    check_positive(estimator._likelihood_parameter, getattr(estimator, estimator._likelihood_parameter))
    if isinstance(estimator, GCGPClassifier):
        as_choice("likelihood", estimator.likelihood, LIKELIHOODS)
    as_choice("chart", estimator.chart, sorted({kind for kinds in CHARTS.values() for kind in kinds}))
    options = estimator.weighting if isinstance(estimator.weighting, list) else [estimator.weighting]
    for option in as_list("weighting", options, 1, MAX_TERMS):
        if not isinstance(option, Weighting):
            as_choice("weighting", option, WEIGHTINGS)
    if estimator.vertex_weights is not None:
        weights = np.asarray(estimator.vertex_weights)
        as_numbers("vertex_weights", weights, weights.shape or (None,))
    if estimator.random_state is not None:
        as_integer("random_state", estimator.random_state, 0, 2**32 - 1)
    for name in ("verbose", "progress"):
        if getattr(estimator, name) not in (True, False):
            raise invalid(name, getattr(estimator, name), "true or false")


def _rebuilt_term(where: str, description: Any, tensors: dict[str, Tensor], fitted: dict[str, Any]) -> Term:
    as_object(where, description, TERM)
    check_term_options(where, description, fitted)
    dtype = DTYPES[as_choice(f"{where}.dtype", description["dtype"], tuple(DTYPES))]
    parts = {name: _taken(tensors, f"{name}.") for name in ("weighting", "kernel")}
    as_object(f"{where}: tensors", tensors, ("inducing", "root"))
    check_inducing(f"{where}.inducing", tensors["inducing"], dtype)
    weighting = checked_weighting(f"{where}.weighting", description["weighting"], parts["weighting"])
    kernel = _rebuilt_kernel(where, description, parts["kernel"], tensors["inducing"].shape[1], dtype)
    convolution = Convolution(
        weighting,
        description["chart"],
        description["bin_counts"],
        description["position"],
        description["area_weighted"],
        dtype,
    )
    term = Term(convolution, kernel, tensors["inducing"], description["jitter"])
    check_columns(where, term, fitted)
    check_root(f"{where}.root", term, tensors["root"])
    term.__dict__["root"] = tensors["root"]  # what the cached property would compute
    return term


def _rebuilt_kernel(
    where: str, description: dict[str, Any], state: dict[str, Tensor], columns: int, dtype: torch.dtype
) -> ConvolutionalKernel:
    shapes = {key.removeprefix("base."): tensor.shape for key, tensor in state.items() if "base." in key}
    check(description["base"], shapes, f"{where}.base", columns)
    weights = state.get("vertex_weights")
    if weights is not None:
        checked_tensor(f"{where}.vertex_weights", weights, (None,), dtype)
    kernel = ConvolutionalKernel(build(description["base"]), description["aggregate"], weights).to(dtype)
    load_state(kernel, state, f"{where}.kernel")
    return kernel.requires_grad_(False)


def _usable(device: Any) -> str:
    """The device, or the CPU where there is no such device."""
    if not isinstance(device, str) or not re.fullmatch(r"(?!meta)[a-z]{1,20}(:\d{1,3})?", device):
        raise invalid("device", device, "the name of a device")
    try:
        as_device(device)
    except ValueError:
        return "cpu"
    return device


def _taken(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, without the beginning; they are removed."""
    names = [key for key in tensors if key.startswith(prefix)]
    return {name.removeprefix(prefix): tensors.pop(name) for name in names}
