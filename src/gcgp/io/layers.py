"""Fitted layers as JSON descriptions and tensors, and back."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gcgp.domain import Domains
from gcgp.io import checks
from gcgp.io.tensors import check_all_used, checked_tensor, module_state, take_prefix, with_prefix
from gcgp.io.weightings import describe_weighting, rebuild_weighting
from gcgp.layers import FittedLayer
from gcgp.layers.fitted import LAYER_KERNELS
from gcgp.layers.pooling import POOLS, Grid
from gcgp.patches import Convolution

MAX_STRIDE = 10_000
MAX_FLATTENED = 10**9
NORM_TOLERANCE = 1e-4
as_scale = partial(checks.as_number, least=1e-30, most=1e30)


def as_pool(where: str, value: Any) -> str | None:
    """The name of a pool, or None."""
    return None if value is None else checks.as_choice(where, value, POOLS)


LAYER_FIELDS: dict[str, checks.Check] = {
    "kernel": partial(checks.as_choice, known=LAYER_KERNELS),
    "lengthscale": as_scale,
    "unit": as_scale,
    "centered": checks.as_flag,
    "average": partial(checks.as_number, least=0.0, most=1e30),
    "stride": partial(checks.as_integer, least=1, most=MAX_STRIDE),
    "spacing": as_scale,
    "rotation_average": checks.as_flag,
    "skip": checks.as_flag,
    "pool": as_pool,
    "flattened": partial(checks.as_integer, least=1, most=MAX_FLATTENED),
    "normalized": checks.as_flag,
}
PATCH_FIELDS: dict[str, checks.Check] = {
    "chart": partial(checks.as_string, most=100),
    "bin_counts": checks.as_flag,
    "area_weighted": checks.as_flag,
}


def describe_layer(layer: FittedLayer) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The description of a layer, and its tensors by name."""
    convolution = layer.convolution
    description = {
        **{name: getattr(layer, name) for name in LAYER_FIELDS},
        **{name: getattr(convolution, name) for name in PATCH_FIELDS},
        "lengthscale": float(layer.lengthscale),
        "weighting": describe_weighting(convolution.weighting),
    }
    state = with_prefix("weighting.", module_state(convolution.weighting))
    grid = {} if layer.grid is None else {"centers": layer.grid.centers, "widths": layer.grid.widths}
    return description, {"anchors": layer.anchors, **with_prefix("grid.", grid), **state}


def rebuild_layer(
    where: str,
    description: Any,
    tensors: dict[str, Tensor],
    domain: type[Domains],
    channels: int,
    dtype: torch.dtype,
    *,
    has_areas: bool,
) -> FittedLayer:
    """The layer that `describe_layer` described, for signals with these channels on this kind of domain."""
    checks.as_object(where, description, (*LAYER_FIELDS, *PATCH_FIELDS, "weighting"))
    fields, patch = (
        {name: check(f"{where}.{name}", description[name]) for name, check in known.items()}
        for known in (LAYER_FIELDS, PATCH_FIELDS)
    )
    if patch["area_weighted"] and not has_areas:
        raise checks.invalid(f"{where}.area_weighted", True, f"false: {domain.__name__} have no areas")
    anchors = checked_tensor(f"{where}.anchors", tensors.pop("anchors", None), (None, None), dtype)
    if not (anchors.abs() <= (torch.finfo(dtype).max / anchors.shape[1]) ** 0.5 / 4).all():
        raise ValueError(f"{where}.anchors: values whose squared distances overflow")
    state = take_prefix(tensors, "weighting.")
    weighting = rebuild_weighting(f"{where}.weighting", description["weighting"], state)
    for name in weighting.coordinates:
        if not re.fullmatch(pattern := domain.coordinate_pattern, name):
            raise checks.invalid(f"{where}.weighting: coordinate", name, f"one of {pattern}")
    checks.as_number(f"{where}.weighting: reach", weighting.reach, 0.0)
    columns = anchors.shape[1]
    bins = checks.as_integer(f"{where}.weighting: bins", weighting.bins, 1, columns)
    expected = bins * (channels + patch["bin_counts"])
    if columns != expected:
        raise ValueError(f"{where}: anchors have {columns} columns, but the patches {expected}")
    if fields["rotation_average"] and (weighting.rotations is None or patch["bin_counts"]):
        raise checks.invalid(f"{where}.rotation_average", True, "false: there are no directions to rotate")
    norms = anchors.double().norm(dim=1)
    if fields["kernel"] == "homogeneous" and not ((norms - 1).abs() <= NORM_TOLERANCE).all():
        raise ValueError(f"{where}.anchors: the norms of anchors of a homogeneous kernel must be 1")
    grid = _rebuild_grid(f"{where}.grid", tensors) if fields["pool"] == "grid" else None
    check_all_used(where, tensors)
    convolution = Convolution(weighting, **patch, dtype=dtype)
    fields["lengthscale"] = torch.tensor(fields["lengthscale"], dtype=torch.float64)
    # In memory of its own, aligned as when it was fitted: sums are then in the same order.
    layer = FittedLayer(convolution, anchors=anchors.clone(), grid=grid, **fields)
    try:
        finite = bool(torch.isfinite(layer.root).all())
    except RuntimeError:  # torch.linalg.LinAlgError
        finite = False
    if not finite:
        raise ValueError(f"{where}.anchors: the kernel between them has no Cholesky factor")
    return layer


def _rebuild_grid(where: str, tensors: dict[str, Tensor]) -> Grid:
    parts = take_prefix(tensors, "grid.")
    widths = checked_tensor(f"{where}.widths", parts.pop("widths", None), (None,), torch.float64)
    shape = (None, len(widths))
    centers = checked_tensor(f"{where}.centers", parts.pop("centers", None), shape, torch.float64)
    if not (widths > 0).all():
        raise ValueError(f"{where}.widths: must be positive")
    return Grid(centers.clone(), widths.clone())
