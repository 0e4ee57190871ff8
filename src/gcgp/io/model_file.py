"""Model files: one safetensors file whose header holds the rest as JSON. Loading one never runs code."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gcgp import __version__
from gcgp._runtime.atomic import atomic_write
from gcgp.estimators.estimators import GCGPClassifier
from gcgp.inference import Term
from gcgp.io.checked_json import as_object
from gcgp.io.kernels import describe
from gcgp.io.model_check import FITTED
from gcgp.io.model_rebuild import DESCRIPTORS, ESTIMATORS, rebuilt
from gcgp.io.model_values import plain_labels, plain_parameter, plain_weighting

FORMAT = "gcgp-model"
FORMAT_VERSION = 4
FAILURES = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError),
    *(RuntimeError, OSError, MemoryError, SafetensorError),
)
"""What reading a file of any content may raise."""


def save(model: Any, path: str | Path) -> None:
    """Write a fitted estimator to `path`, or a fitted `Pipeline` of descriptors and an estimator.

    The file is replaced only once the new one is whole. Of the pipeline itself its steps are kept, and not
    where it caches them; of the estimator's options all but `checkpoint`, a path of this machine.
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
    # Copies, because terms may share a tensor, which safetensors refuses.
    tensors = {key: value.detach().contiguous().clone() for key, value in tensors.items()}
    text = json.dumps(description)
    try:
        rebuilt(json.loads(text), tensors)
    except FAILURES as error:
        raise ValueError(
            f"{path}: the model cannot be written, because it could not be read again: {error}"
        ) from error
    metadata = {
        "format": FORMAT,
        "version": str(FORMAT_VERSION),
        "model": text,
        "digest": _digest(text, tensors),
    }
    with atomic_write(path, durable=True) as part:
        save_file(tensors, part, metadata)


def load(path: str | Path) -> Any:
    """Read an estimator or a pipeline written by `save`. It predicts bit for bit what the saved one did.

    A file that is cut off, damaged, inconsistent, or no model file raises a ValueError with the path. The
    description is checked against the stored tensors before anything is built, so that reading takes no more
    memory than a few times the file. `checkpoint` of the loaded model is None: it writes to no file.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no model file at {path}")
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            # Copies, because results may differ in the last bit with the alignment in memory.
            tensors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118
    except FAILURES as error:
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
    try:
        as_object("metadata", metadata, ("format", "version", "model", "digest"))
        return rebuilt(json.loads(text), tensors)
    except ValueError as error:
        raise ValueError(f"{path}: not a valid gcgp model: {error}") from error
    except FAILURES as error:
        raise ValueError(f"{path}: not a valid gcgp model ({type(error).__name__}: {error})") from error


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
            key: plain_parameter(key, None if key == "checkpoint" else value)
            for key, value in step.get_params(deep=False).items()
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
            description["start"].append(plain_weighting(weighting))
            for key, value in weighting.state_dict().items():
                tensors[f"{prefix}start.{i}.{key}"] = value
    description["terms"] = [
        _describe_term(term, f"{prefix}terms.{i}.", tensors) for i, term in enumerate(step.features_.terms)
    ]
    if isinstance(step, GCGPClassifier):
        description["classes"] = plain_labels(step.classes_)
    return description


def _describe_term(term: Term, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    tensors[prefix + "inducing"] = term.inducing
    tensors[prefix + "root"] = term.root
    for part, module in (("weighting", term.convolution.weighting), ("kernel", term.kernel)):
        for key, value in module.state_dict().items():
            tensors[f"{prefix}{part}.{key}"] = value
    return {
        "weighting": plain_weighting(term.convolution.weighting),
        "chart": term.convolution.chart,
        "bin_counts": term.convolution.bin_counts,
        "position": term.convolution.position,
        "area_weighted": term.convolution.area_weighted,
        "dtype": str(term.convolution.dtype).removeprefix("torch."),
        "aggregate": term.kernel.aggregate,
        "base": describe(term.kernel.base),
        "jitter": term.jitter,
    }


def _digest(text: str, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for key in sorted(tensors):
        tensor = tensors[key]
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
