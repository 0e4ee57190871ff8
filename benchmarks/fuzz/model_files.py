"""Cases: model files with changed contents and a checksum that matches them."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.pipeline import make_pipeline

import gcgp
from benchmarks.fuzz import bases
from benchmarks.fuzz.draws import Draw
from benchmarks.fuzz.judging import check, check_finite
from experiments.metrics import peak_memory
from gcgp import (
    GaussianMixture,
    GCGPClassifier,
    GCGPRegressor,
    GeometryVectors,
    Patch,
    PatchKernel,
    Polar,
    Radial,
    Runtime,
    Signals,
)
from gcgp.io.container import checksum

Run = Callable[[], None]
LOAD_SECONDS, LOAD_GB = 2.0, 0.2


def _deep(depth: int) -> Any:
    item: Any = 0
    for _ in range(depth):
        item = [item]
    return item


def _kernels(depth: int, width: int) -> dict[str, Any]:
    if depth == 0:
        return {"class": "RBFKernel", "active_dims": None, "ard_num_dims": None, "arguments": {}}
    return {
        "class": "AdditiveKernel" if width > 1 else "ScaleKernel",
        "active_dims": None,
        "parts": [_kernels(depth - 1, width)] * width,
    }


PLAIN: tuple[Any, ...] = (
    *(float("nan"), float("inf"), -float("inf"), -1, 0, 1, 1e-300, 1e308, 2**31, 2**63, 10**9, 10**400),
    *("", "a", "auto", [], [0], {}, None, True, False, 0.5, -0.0, 3),
)
HOSTILE: dict[str, Any] = {
    **{repr(value): value for value in PLAIN},
    "long string": "x" * 100_000,
    "nested lists": _deep(300),
    "long list": [0] * 100_000,
    "list of lists": [[]] * 50_000,
    "class": {"class": "eval"},
    "deep kernel": _kernels(100, 1),
    "24 kernels": _kernels(24, 1),
    "tree of kernels": _kernels(4, 8),
    "array": {"is": "array", "dtype": "100000000f8", "items": [1.0]},
    "strings": {"is": "array", "dtype": "<U9999999", "items": ["a"] * 1000},
    "mixture": {
        "is": "weighting",
        "class": "GaussianMixture",
        "parameters": {"means": [[0.0] * 100_000], "on": ["degree"]},
        "shorthand": {"scales": 1.0, "shear": None},
    },
    "angles": {
        "is": "weighting",
        "class": "Polar",
        "parameters": {"radii": [1.0], "angles": 10**9, "radial_width": 1.0, "angular_width": 1.0},
        "shorthand": {"angles": 10**9},
    },
    **{
        name: {"is": "options", "class": name, "parameters": {}}
        for name in ("Patch", "Learn", "Runtime", "Likelihood", "Gaussian", "Dirichlet", "InferenceMethod")
    },
}
DTYPES = ("float16", "float32", "float64", "bfloat16", "int32", "int64", "uint8", "bool", "complex64")
TENSORS: dict[str, Callable[[Draw, torch.Tensor], torch.Tensor]] = {
    "one value": lambda draw, tensor: _one_value(draw, tensor),
    "zeros": lambda draw, tensor: torch.zeros_like(tensor),
    "huge": lambda draw, tensor: torch.full_like(tensor, 1e38 if tensor.is_floating_point() else 2**30),
    "negative": lambda draw, tensor: -tensor,
    "scaled": lambda draw, tensor: tensor * draw.value("factor", (0, 2, 1000)),
    "dtype": lambda draw, tensor: tensor.to(getattr(torch, draw.value("dtype", DTYPES))),
    "longer": lambda draw, tensor: torch.cat([tensor.reshape(-1)] * 2),
    "one axis more": lambda draw, tensor: tensor[None],
    "empty": lambda draw, tensor: tensor.reshape(-1)[:0],
    "transposed": lambda draw, tensor: (
        tensor.T if tensor.ndim == 2 else tensor.flip(0) if tensor.ndim else tensor
    ),
    "one row less": lambda draw, tensor: tensor[:-1] if tensor.ndim else tensor,
}


def _one_value(draw: Draw, tensor: torch.Tensor) -> torch.Tensor:
    other = tensor.clone()
    values = (
        (float("nan"), float("inf"), -1e30, 1e30, 0.0, -1.0, 1e308)
        if other.is_floating_point()
        else (-1, 2**30)
    )
    if other.numel():
        value = draw.value("value", values)
        if other.dtype == torch.float32 and abs(value) == 1e308:
            value = 3.4e38
        other.view(-1)[draw.integer(0, other.numel() - 1)] = value
    return other


@cache
def _models() -> dict[str, tuple[Any, Any]]:
    """Models of each kind of domain, and two signals that they predict."""
    rng = np.random.default_rng(3)
    fast: dict[str, Any] = {
        "n_inducing": 6,
        "kernel": PatchKernel(lengthscale=0.4, variance=3.0),
        "runtime": Runtime(progress=False),
    }
    pictures = rng.random((12, 5, 5))
    graphs = Signals.on_graph(rng.random((12, 4, 2)), [[0, 1], [1, 2], [2, 3]])
    meshes = bases.octahedra(rng, 8)
    mixture = GaussianMixture([[0.5, 0.5], [0.9, 0.1]], on=["degree"])
    classifier = GCGPClassifier([Polar([1], 2), "box"], patch=Patch(position=2.0), **fast)
    regressor = GCGPRegressor(mixture, patch=Patch(bin_counts=True), **fast)
    pipeline = make_pipeline(GeometryVectors(3, n_splines=5), GCGPClassifier(Radial([0.0, 0.5]), **fast))
    return {
        "images": (classifier.fit(pictures, ["a", "b", "c"] * 4), pictures[:2]),
        "graphs": (regressor.fit(graphs, rng.random(12)), graphs[:2]),
        "meshes": (pipeline.fit(meshes, [0, 1] * 4), meshes[:2]),
    }


@cache
def _contents(name: str, folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor], dict[str, str]]:
    """Description, tensors and metadata of a saved model."""
    path = folder / f"{name}.gcgp"
    gcgp.save(_models()[name][0], path)
    with safe_open(str(path), framework="pt") as file:
        metadata = file.metadata()
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    return json.loads(metadata["model"]), tensors, metadata


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every item of nested objects and lists."""
    if place:
        yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*place, key))


def _changed_description(draw: Draw, description: dict[str, Any]) -> Any:
    copied = copy.deepcopy(description)
    place = draw.value("place", list(places(description)))
    within: Any = copied
    for key in place[:-1]:
        within = within[key]
    how = draw.value("how", ("replaced", "replaced", "replaced", "removed", "repeated", "swapped"))
    if how == "removed":
        del within[place[-1]]
    elif how == "replaced":
        within[place[-1]] = draw.named("value", HOSTILE)
    elif how == "repeated":
        within[place[-1]] = [within[place[-1]]] * 2
    else:
        other = draw.value("other place", list(places(description)))
        source: Any = description
        for key in other:
            source = source[key]
        within[place[-1]] = copy.deepcopy(source)
    return copied


def _changed_bytes(draw: Draw, content: bytes) -> bytes:
    array = bytearray(content)
    for _ in range(draw.integer(1, 4)):
        array[draw.integer(0, min(len(array), draw.value("within", (8, 200, len(array)))) - 1)] = (
            draw.integer(0, 255)
        )
    return bytes(array[: draw.value("length", (len(array), len(array), len(array) // 2, 7))])


def model_files(draw: Draw, folder: Path) -> Run:
    """A file that is refused with its path, or loads and predicts finite numbers."""
    name = draw.value("model", ("images", "graphs", "meshes"))
    data = _models()[name][1]
    description, tensors, metadata = _contents(name, folder)
    path = folder / "case.gcgp"
    how = draw.value("changed", ("description", "description", "tensor", "tensor", "both", "bytes", "keys"))
    changed: Any = description
    tensors = dict(tensors)
    metadata = dict(metadata)
    if how in ("description", "both"):
        changed = _changed_description(draw, description)
    if how in ("tensor", "both"):
        key = draw.value("tensor", list(tensors))
        tensors[key] = draw.apply("change", TENSORS, tensors[key]).contiguous()
    if how == "keys":
        key = draw.value("tensor", list(tensors))
        tensors[draw.value("new key", ("strange", key + ".x", ""))] = tensors.pop(key).clone()
        metadata[draw.value("metadata", ("version", "format", "strange"))] = draw.value(
            "text", ("", "3", "x")
        )
    text = json.dumps(changed)
    save_file(tensors, str(path), metadata | {"model": text, "digest": checksum(text, tensors)})
    if how == "bytes":
        path.write_bytes(_changed_bytes(draw, path.read_bytes()))

    def run() -> None:
        start, before = time.perf_counter(), peak_memory()
        try:
            model = gcgp.load(path)
        except ValueError as error:
            check(str(path) in str(error), f"the path is not in the error {str(error)[:200]!r}")
            raise
        finally:
            taken, grown = time.perf_counter() - start, peak_memory() - before
            check(taken < LOAD_SECONDS, f"reading took {taken:.1f} s")
            check(grown < LOAD_GB, f"reading took {grown:.2f} GB")
        last = model[-1] if hasattr(model, "steps") else model
        check(last.runtime is None or last.runtime.checkpoint is None, f"runtime={last.runtime!r}")
        predict = getattr(model, "predict_proba", model.predict)
        check_finite("prediction", predict(data))

    return run
