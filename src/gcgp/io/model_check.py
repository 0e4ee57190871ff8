"""Checks of a model file's description against its tensors, before any object is made of them.

Sizes, counts and names in the description are compared with the stored tensors, so that nothing larger than
the file is ever built. Every error is a ValueError that names the field.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gcgp.estimators.value_range import largest_magnitude
from gcgp.inference import Posterior, Term
from gcgp.inference.cholesky import LARGEST_JITTER
from gcgp.io.checked_json import (
    as_choice,
    as_flag,
    as_integer,
    as_list,
    as_number,
    as_object,
    as_text,
    invalid,
)
from gcgp.kernel.convolutional import AGGREGATES

MAX_STEPS = 16
MAX_TERMS = 64
MAX_SIDE = 1 << 16
"""Pixels along one side of an image."""
MAX_COORDINATES = 64
MAX_PIXEL_REACH = 2048.0
MAX_SPLINES = 2000
MAX_EIGENPAIRS = 100_000
CHANNELS = ("n_vectors", "n_times", "n_energies")
"""Options of descriptors that give the number of their channels."""
LARGEST_VALUE = 1e100
"""Of the values that descriptors have learned."""
LARGEST_SHIFT = 1e17
"""Of a descriptor's means, in standard deviations: their squares must be finite in float32."""
LEAST_SCALE, LARGEST_SCALE = 1e-250, 1e250
"""Of variances: their products with kernel values must neither vanish nor overflow."""
LARGEST_WEIGHT = 1e125
LARGEST_CONSTANT = 1e100
KUU_ROWS = 512
"""Rows of Kuu that are compared with its stored factor."""
KUU_TOLERANCE = 1e-3
PROBES = 4

CHARTS = {
    "Grids": ("auto", "path"),
    "Graphs": ("auto", "euclidean", "path"),
    "Meshes": ("auto", "geodesic", "logmap"),
}
COORDINATES = {
    "Grids": r"rho|theta|offset",
    "Graphs": r"rho|theta|offset|degree",
    "Meshes": r"rho|theta|rays:\d{1,4}(:curvature|:edge)?",
}
Check = Callable[[str, Any], Any]
Shape = Sequence[int | None]


def _image_shape(where: str, value: Any) -> None:
    if value is not None:
        for side in as_list(where, value, 2, 2):
            as_integer(where, side, 1, MAX_SIDE)


def _variance(where: str, value: Any) -> float:
    return as_number(where, value, LEAST_SCALE, LARGEST_SCALE)


COMMON: dict[str, Check] = {
    "variance_": _variance,
    "bound_": as_number,
    "n_iter_": lambda where, value: as_integer(where, value, 1),
    "domain_": lambda where, value: as_choice(where, value, tuple(CHARTS)),
    "channels_": lambda where, value: as_integer(where, value, 1),
    "image_shape_": _image_shape,
    "n_coordinates_": lambda where, value: as_integer(where, value, 0, MAX_COORDINATES),
    "edge_lengths_": as_flag,
    "constant_": lambda where, value: as_number(where, value, 0.0, LARGEST_CONSTANT),
    "largest_value_": lambda where, value: as_number(where, value, 1.0, largest_magnitude("float64")),
}
FITTED: dict[str, dict[str, Check]] = {
    "GCGPClassifier": {
        **COMMON,
        "alpha_": _variance,
        "softmax_weight_": lambda where, value: as_number(where, value, 0.0),
        "likelihood_": lambda where, value: as_choice(where, value, ("softmax", "robust-max")),
    },
    "GCGPRegressor": {**COMMON, "noise_": _variance, "intercept_": as_number},
}
"""Fitted attributes of each estimator that are numbers, texts or short lists, and how they are checked."""


def check_step_names(steps: Sequence[Mapping[str, Any]], pipeline: bool) -> None:
    """Names of a pipeline's steps: as scikit-learn demands them; of a model alone: empty."""
    names = [as_text(f"steps[{i}].name", step["name"]) for i, step in enumerate(steps)]
    if not pipeline and names != [""]:
        raise invalid("steps[0].name", names[0], "an empty name, because the model is no pipeline")
    for i, name in enumerate(names if pipeline else ()):
        reserved = ("steps", "memory", "verbose", "transform_input")
        if not name or "__" in name or name in reserved or name in names[:i]:
            raise invalid(f"steps[{i}].name", name, "a name that no other step has, without '__'")


def check_fitted(where: str, fitted: Any, checks: Mapping[str, Check]) -> None:
    """The fitted attributes of one estimator."""
    as_object(where, fitted, tuple(checks))
    for name, value in fitted.items():
        checks[name](f"{where}.{name}", value)
    domain = fitted["domain_"]
    if fitted["image_shape_"] is not None and domain != "Grids":
        raise invalid(f"{where}.image_shape_", fitted["image_shape_"], "null, because domains are no images")
    for name in ("n_coordinates_", "edge_lengths_"):
        if fitted[name] and domain != "Graphs":
            raise invalid(f"{where}.{name}", fitted[name], "nothing, because domains are no graphs")


def check_history(where: str, history: Any) -> None:
    """The steps of learning."""
    for i, step in enumerate(as_list(where, history, 0, 10**6)):
        iteration, stage, value, seconds = as_list(f"{where}[{i}]", step, 4, 4)
        as_integer(f"{where}[{i}][0]", iteration, 0)
        as_text(f"{where}[{i}][1]", stage)
        as_number(f"{where}[{i}][2]", value)
        as_number(f"{where}[{i}][3]", seconds, 0.0)


def check_posterior(where: str, tensors: Mapping[str, Tensor], size: int, variance: float) -> int:
    """Check the tensors of a posterior on `size` features; returns the number of latent functions."""
    as_object(where, dict(tensors), ("weights", "roots"))
    weights = checked_tensor(f"{where}.weights", tensors["weights"], (size, None), torch.float64)
    count = weights.shape[1]
    roots = checked_tensor(f"{where}.roots", tensors["roots"], (count, size, size), torch.float64)
    if not (roots.diagonal(dim1=1, dim2=2) > 0).all():
        raise ValueError(f"{where}.roots: the diagonals of the Cholesky factors must be positive")
    if not (weights.abs() <= LARGEST_WEIGHT).all():
        raise ValueError(f"{where}.weights: values above {LARGEST_WEIGHT:g}")
    probes = torch.randn(PROBES, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        explained = Posterior(variance, weights, roots).explained_variance(probes)
    if not (explained <= LARGEST_SCALE).all():  # not of NaN either
        raise ValueError(f"{where}.roots: the posterior variances overflow")
    return count


def checked_tensor(where: str, tensor: Tensor, shape: Shape, dtype: torch.dtype) -> Tensor:
    """The tensor, if it is of this shape (None: at least 1) and dtype, and finite."""
    fits = tensor.ndim == len(shape) and all(
        n >= 1 if wished is None else n == wished for n, wished in zip(tensor.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("n" if n is None else str(n) for n in shape)
        raise ValueError(f"{where}: the stored tensor has shape {list(tensor.shape)}, expected [{wanted}]")
    if tensor.dtype != dtype:
        raise ValueError(f"{where}: the stored tensor is of {tensor.dtype}, expected {dtype}")
    if not torch.isfinite(tensor).all():
        raise ValueError(f"{where}: the stored tensor has values that are not finite")
    return tensor


def check_term_options(where: str, term: Mapping[str, Any], fitted: Mapping[str, Any]) -> None:
    """The options of a term that are no weighting and no kernel."""
    domain = fitted["domain_"]
    as_choice(f"{where}.chart", term["chart"], CHARTS[domain])
    for name in ("bin_counts", "position", "area_weighted"):
        as_flag(f"{where}.{name}", term[name])
    if term["chart"] == "euclidean" and not fitted["n_coordinates_"]:
        raise invalid(f"{where}.chart", term["chart"], "'path', because the graphs have no coordinates")
    if term["area_weighted"] and domain != "Meshes":
        raise invalid(f"{where}.areas", True, "false, because the domains are no meshes")
    as_choice(f"{where}.aggregate", term["aggregate"], AGGREGATES)
    as_number(f"{where}.jitter", term["jitter"], 0.0, 1.0)


def check_inducing(where: str, inducing: Tensor, dtype: torch.dtype) -> None:
    """Inducing patches `[M, dim]`, small enough for their squared distances to be finite."""
    checked_tensor(where, inducing, (None, None), dtype)
    largest = (torch.finfo(dtype).max / inducing.shape[1]) ** 0.5 / 4
    if not (inducing.abs() <= largest).all():
        raise ValueError(f"{where}: values whose squares overflow")


def check_columns(where: str, term: Term, fitted: Mapping[str, Any]) -> None:
    """Whether the weighting suits the domain and makes patches as long as the inducing ones."""
    convolution, domain, dim = term.convolution, fitted["domain_"], term.inducing.shape[1]
    weighting = convolution.weighting
    for name in weighting.coordinates:
        if not re.fullmatch(COORDINATES[domain], name):
            raise invalid(f"{where}.weighting: coordinate", name, f"one of {domain}: {COORDINATES[domain]}")
    reach = as_number(f"{where}.weighting: reach", weighting.reach, 0.0)
    if domain == "Grids" and reach > MAX_PIXEL_REACH:
        raise invalid(f"{where}.weighting: reach", reach, f"at most {MAX_PIXEL_REACH:g} pixels")
    bins = as_integer(f"{where}.weighting: bins", weighting.bins, 1, dim)
    rest = dim - bins * (fitted["channels_"] + convolution.bin_counts)
    position = {"Grids": 2, "Meshes": 3}.get(domain, fitted["n_coordinates_"])
    if rest != (position if convolution.position else 0):
        raise ValueError(
            f"{where}: inducing patches have {dim} columns, which do not fit {bins} bins of "
            f"{fitted['channels_']} channels with bin_counts={convolution.bin_counts}, position={convolution.position}"
        )
    weights = term.kernel.vertex_weights
    shape = fitted["image_shape_"]
    if weights is not None and shape is not None and len(weights) > shape[0] * shape[1]:
        raise ValueError(f"{where}: {len(weights)} vertex_weights for images of shape {shape}")


def check_root(where: str, term: Term, root: Tensor) -> None:
    """Whether the stored factor of Kuu is one of the kernel between the inducing patches.

    All rows are compared, or in large models some. Jitter on the diagonal may have been raised.
    """
    size = len(term.inducing)
    checked_tensor(where, root, (size, size), torch.float64)
    if not (root.diagonal() > 0).all():
        raise ValueError(f"{where}: the diagonal of a Cholesky factor must be positive")
    rows = torch.linspace(0, size - 1, min(size, KUU_ROWS), dtype=torch.float64).round().long()
    with torch.no_grad():
        kuu = copy.deepcopy(term.kernel).double().kuu(term.inducing[rows].double())
        difference = root[rows] @ root[rows].T - kuu
    scale = kuu.diagonal().mean()
    raised = difference.diagonal().clone()
    difference.fill_diagonal_(0.0)
    good = (difference.abs() <= KUU_TOLERANCE * scale).all() & (scale > 0) & (scale <= LARGEST_WEIGHT)
    within = (raised >= -KUU_TOLERANCE * scale) & (raised <= (2 * LARGEST_JITTER + KUU_TOLERANCE) * scale)
    if not (good and within.all()):
        raise ValueError(f"{where}: the stored factor is not that of the kernel between the inducing patches")


def check_descriptor(where: str, descriptor: Any, tensors: Mapping[str, Tensor]) -> None:
    """The stored tensors of a descriptor with valid options, and the sizes among its options."""
    as_object(where, dict(tensors), descriptor.fitted)
    (channels,) = checked_tensor(f"{where}.mean_", tensors["mean_"], (None,), torch.float64).shape
    named = next(name for name in CHANNELS if hasattr(descriptor, name))
    if getattr(descriptor, named) != channels:
        raise invalid(f"{where}.parameters.{named}", getattr(descriptor, named), f"{channels}, as stored")
    as_integer(f"{where}.parameters.eigenpairs", descriptor.eigenpairs, 2, MAX_EIGENPAIRS)
    if getattr(descriptor, "n_splines", None) is not None:
        as_integer(f"{where}.parameters.n_splines", descriptor.n_splines, channels, MAX_SPLINES)
    for name in descriptor.fitted:
        shape = () if name in ("band_", "width_") else (channels,)
        tensor = checked_tensor(f"{where}.{name}", tensors[name], shape, torch.float64)
        positive = name not in ("mean_", "energies_")
        if not ((tensor.abs() <= LARGEST_VALUE) & ((tensor >= 1 / LARGEST_VALUE) | (not positive))).all():
            raise ValueError(f"{where}.{name}: values that are too large or too small")
    if not ((tensors["mean_"] / tensors["deviation_"]).abs() <= LARGEST_SHIFT).all():
        raise ValueError(f"{where}.mean_: more than {LARGEST_SHIFT:g} standard deviations")
