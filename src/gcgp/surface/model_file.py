"""Model files: one safetensors file whose header holds the rest as JSON. Loading one never runs code."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gcgp import __version__
from gcgp.domain.whole_file import whole_file
from gcgp.inference import Features, Posterior, Term
from gcgp.inference.climbing import Step
from gcgp.kernel import ConvolutionalKernel
from gcgp.kernel.description import build, describe
from gcgp.patches import Convolution
from gcgp.surface.descriptors import GeometryVectors, HeatKernelSignature, WaveKernelSignature
from gcgp.surface.estimators import GCGPClassifier, GCGPRegressor
from gcgp.surface.fitting import DTYPES
from gcgp.surface.inputs import as_bytes, as_device, object_array
from gcgp.weighting import Weighting

FORMAT = "gcgp-model"
FORMAT_VERSION = 3
ESTIMATORS: dict[str, Any] = {kind.__name__: kind for kind in (GCGPClassifier, GCGPRegressor)}
DESCRIPTORS: dict[str, Any] = {
    kind.__name__: kind for kind in (GeometryVectors, HeatKernelSignature, WaveKernelSignature)
}
COMMON = (
    *("variance_", "bound_", "n_iter_", "domain_", "channels_", "image_shape_"),
    *("n_coordinates_", "edge_lengths_"),
)
FITTED = {
    "GCGPClassifier": (*COMMON, "alpha_", "softmax_weight_"),
    "GCGPRegressor": (*COMMON, "noise_", "intercept_"),
}
"""Fitted attributes that are numbers, texts or short lists."""
LATER = {"softmax_weight_": 0.0}
"""Those that the first files did not have."""


def save(model: Any, path: str | Path) -> None:
    """Write a fitted estimator to `path`, or a fitted `Pipeline` of descriptors and an estimator.

    The file is replaced only once the new one is whole. Of the pipeline itself its steps are kept, and not
    where it caches them.
    """
    whole = type(model) is Pipeline
    steps = model.steps if whole else [("", model)]
    tensors: dict[str, Tensor] = {}
    description = {
        "gcgp": __version__,
        "pipeline": whole,
        "steps": [
            _describe_step(
                name, step, f"steps.{i}.", tensors, DESCRIPTORS if i + 1 < len(steps) else ESTIMATORS
            )
            for i, (name, step) in enumerate(steps)
        ],
    }
    tensors = {key: value.detach().contiguous() for key, value in tensors.items()}
    text = json.dumps(description)
    metadata = {
        "format": FORMAT,
        "version": str(FORMAT_VERSION),
        "model": text,
        "digest": _digest(text, tensors),
    }
    with whole_file(path, durable=True) as part:
        save_file(tensors, part, metadata)


def load(path: str | Path) -> Any:
    """Read an estimator or a pipeline written by `save`. It predicts bit for bit what the saved one did.

    A file that is cut off, damaged, or no model file raises a ValueError that says so.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no model file at {path}")
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            # Copies, because results may differ in the last bit with the alignment in memory.
            tensors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path}: not a gcgp model file, or cut off or damaged ({error})") from error
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path}: a safetensors file, but no gcgp model")
    if metadata.get("version") != str(FORMAT_VERSION):
        raise ValueError(
            f"{path}: model format {metadata.get('version')}, but gcgp {__version__} reads {FORMAT_VERSION}"
        )
    text = metadata.get("model", "")
    if metadata.get("digest") != _digest(text, tensors):
        raise ValueError(f"{path}: damaged (its contents do not match their checksum)")
    description = json.loads(text)
    steps = [
        (step["name"], _rebuilt_step(step, _under(tensors, f"steps.{i}.")))
        for i, step in enumerate(description["steps"])
    ]
    return Pipeline(steps) if description["pipeline"] else steps[0][1]


def _describe_step(
    name: str, step: Any, prefix: str, tensors: dict[str, Tensor], known: dict[str, Any]
) -> dict[str, Any]:
    kind = type(step).__name__
    if known.get(kind) is not type(step):
        item = f"step {name!r}: " if name else ""
        raise ValueError(f"{item}a {kind} cannot be written to a model file, only {', '.join(known)}")
    check_is_fitted(step, "mean_" if kind in DESCRIPTORS else "posterior_")
    description: dict[str, Any] = {
        "name": name,
        "class": kind,
        "parameters": {
            key: plain_parameter(key, value) for key, value in step.get_params(deep=False).items()
        },
    }
    if kind in DESCRIPTORS:
        for key in step.fitted:
            tensors[prefix + key] = torch.as_tensor(getattr(step, key), dtype=torch.float64)
        return description
    tensors[prefix + "posterior.weights"] = step.posterior_.weights
    tensors[prefix + "posterior.roots"] = step.posterior_.roots
    description["fitted"] = {key: getattr(step, key) for key in FITTED[kind]}
    description["history"] = [astuple(learned) for learned in step.history_]
    if hasattr(step, "start_weightings_"):
        description["start"] = []
        for i, weighting in enumerate(step.start_weightings_):
            description["start"].append(_plain_weighting(weighting))
            for key, value in weighting.state_dict().items():
                tensors[f"{prefix}start.{i}.{key}"] = value
    description["terms"] = [
        _describe_term(term, f"{prefix}terms.{i}.", tensors) for i, term in enumerate(step.features_.terms)
    ]
    if isinstance(step, GCGPClassifier):
        description["classes"] = _plain_labels(step.classes_)
    return description


def _rebuilt_step(description: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    kind = description["class"]
    parameters = {key: _parameter(value) for key, value in description["parameters"].items()}
    if kind in DESCRIPTORS:
        descriptor = DESCRIPTORS[kind](**parameters)
        for key in descriptor.fitted:
            value = tensors[key]
            setattr(descriptor, key, value.numpy() if value.ndim else value.item())
        return descriptor
    estimator = ESTIMATORS[kind](**parameters | {"device": _usable(parameters.get("device", "cpu"))})
    for key in FITTED[kind]:
        value = (LATER | description["fitted"])[key]
        setattr(estimator, key, tuple(value) if isinstance(value, list) else value)
    terms = [_rebuilt_term(term, f"terms.{i}.", tensors) for i, term in enumerate(description["terms"])]
    estimator.features_ = Features(terms, as_bytes(estimator.memory_limit))
    estimator.posterior_ = Posterior(
        estimator.variance_, tensors["posterior.weights"], tensors["posterior.roots"]
    )
    estimator.history_ = [Step(*learned) for learned in description["history"]]
    if "start" in description:
        estimator.start_weightings_ = [
            _loaded_weighting(start, _under(tensors, f"start.{i}."))
            for i, start in enumerate(description["start"])
        ]
    if isinstance(estimator, GCGPClassifier):
        estimator.classes_ = _labels(description["classes"])
    return estimator


def _describe_term(term: Term, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    tensors[prefix + "inducing"] = term.inducing
    tensors[prefix + "root"] = term.root
    for part, module in (("weighting", term.convolution.weighting), ("kernel", term.kernel)):
        for key, value in module.state_dict().items():
            tensors[f"{prefix}{part}.{key}"] = value
    return {
        "weighting": _plain_weighting(term.convolution.weighting),
        "chart": term.convolution.chart,
        "mass": term.convolution.mass,
        "location": term.convolution.location,
        "areas": term.convolution.areas,
        "dtype": str(term.convolution.dtype).removeprefix("torch."),
        "aggregate": term.kernel.aggregate,
        "base": describe(term.kernel.base),
        "jitter": term.jitter,
    }


def _rebuilt_term(description: dict[str, Any], prefix: str, tensors: dict[str, Tensor]) -> Term:
    dtype = DTYPES[description["dtype"]]
    weighting = _loaded_weighting(description["weighting"], _under(tensors, prefix + "weighting."))
    weights = tensors.get(prefix + "kernel.vertex_weights")
    kernel = ConvolutionalKernel(build(description["base"]), description["aggregate"], weights).to(dtype)
    kernel.load_state_dict(_under(tensors, prefix + "kernel."))
    convolution = Convolution(
        weighting,
        description["chart"],
        description["mass"],
        description["location"],
        description["areas"],
        dtype,
    )
    term = Term(
        convolution,
        kernel.requires_grad_(False),
        tensors[prefix + "inducing"],
        description["jitter"],
    )
    term.__dict__["root"] = tensors[prefix + "root"]  # what the cached property would compute
    return term


def _usable(device: str) -> str:
    """The device, or the CPU where there is no such device."""
    try:
        as_device(device)
    except ValueError:
        return "cpu"
    return device


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}


def _digest(text: str, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for key in sorted(tensors):
        tensor = tensors[key]
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _plain_weighting(weighting: Weighting) -> dict[str, Any]:
    return {"family": type(weighting).__name__, "configuration": weighting.configuration()}


def _weighting(description: dict[str, Any]) -> Weighting:
    family = description["family"]
    if family not in Weighting.families:
        raise ValueError(
            f"the model uses the weighting {family!r}, which is not part of gcgp; "
            "import the module that defines it before loading"
        )
    return Weighting.families[family](**description["configuration"])


def _loaded_weighting(description: dict[str, Any], state: dict[str, Tensor]) -> Weighting:
    weighting = _weighting(description)
    weighting = weighting.to(next((value.dtype for value in state.values()), torch.float32))
    weighting.load_state_dict(state)
    return weighting.requires_grad_(False)


def plain_parameter(name: str, value: Any) -> Any:
    """A constructor argument as JSON; weightings, kernels, arrays and lists are marked as such."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (Path, torch.device)):
        return str(value)
    if isinstance(value, Weighting):
        return {"is": "weighting", **_plain_weighting(value)}
    if isinstance(value, Kernel):
        state = {key: tensor.tolist() for key, tensor in value.state_dict().items()}
        return {"is": "kernel", "base": describe(value), "state": state}
    if isinstance(value, (np.ndarray, Tensor)):
        array = np.asarray(value)
        return {"is": "array", "dtype": str(array.dtype), "items": array.tolist()}
    if isinstance(value, (list, tuple)):
        return {"is": "list", "items": [plain_parameter(name, item) for item in value]}
    if isinstance(value, np.random.RandomState):
        return None  # a generator's state is spent by fitting; the fitted model needs none
    raise ValueError(f"{name}={value!r} cannot be written to a model file")


def _parameter(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    kind = value["is"]
    if kind == "weighting":
        return _weighting(value)
    if kind == "kernel":
        kernel = build(value["base"])
        kernel.load_state_dict({key: torch.tensor(state) for key, state in value["state"].items()})
        return kernel
    if kind == "array":
        return np.array(value["items"], dtype=value["dtype"])
    return [_parameter(item) for item in value["items"]]


def _plain_labels(classes: np.ndarray) -> dict[str, Any]:
    return {
        "dtype": str(classes.dtype),
        "items": [_plain_label(label) for label in classes.tolist()],
    }


def _plain_label(label: Any) -> Any:
    if label is None or isinstance(label, (str, bool, int, float)):
        return label
    if isinstance(label, tuple):
        return {"tuple": [_plain_label(part) for part in label]}
    if isinstance(label, np.generic):
        return label.item()
    raise ValueError(f"the class {label!r} cannot be written to a model file: it is no text or number")


def _label(item: Any) -> Any:
    return tuple(map(_label, item["tuple"])) if isinstance(item, dict) else item


def _labels(description: dict[str, Any]) -> np.ndarray:
    items = [_label(item) for item in description["items"]]
    dtype = description["dtype"]
    return object_array(items) if dtype == "object" else np.array(items, dtype=dtype)
