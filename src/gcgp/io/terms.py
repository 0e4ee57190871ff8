"""Terms, posteriors, histories and domain signatures: from objects to JSON and tensors, and back.

Sizes are compared with the stored tensors before anything is built. Every error is a ValueError that names
the field.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gcgp._runtime.history import Step
from gcgp.domain import Domains, Points
from gcgp.inference import Posterior, Term
from gcgp.inference.cholesky import LARGEST_JITTER
from gcgp.inference.likelihoods import Likelihood
from gcgp.io import checks
from gcgp.io.kernels import describe_kernel, rebuild_kernel
from gcgp.io.layers import describe_layer, rebuild_layer
from gcgp.io.tensors import check_all_used, checked_tensor, module_state, take_prefix, with_prefix
from gcgp.io.values import parameter
from gcgp.io.weightings import describe_weighting, rebuild_weighting
from gcgp.kernel import ConvolutionalKernel
from gcgp.kernel.convolutional import AGGREGATES
from gcgp.layers.convolution import layered
from gcgp.patches import Convolution
from gcgp.weighting import Weighting

MAX_SIGNATURE_ITEMS = 64
MAX_LAYERS = 16
MIN_VARIANCE, MAX_VARIANCE = 1e-250, 1e250
"""The products of variances with kernel values must neither vanish nor overflow."""
MAX_POSTERIOR_WEIGHT = 1e125
MAX_COMPARED_KUU_ROWS = 512
KUU_TOLERANCE = 1e-3
VARIANCE_PROBES = 4
STORED_DTYPES = {"float32": torch.float32, "float64": torch.float64}
CONVOLUTION_FIELDS: dict[str, checks.Check] = {
    "chart": partial(checks.as_string, most=100),
    "bin_counts": checks.as_flag,
    "position": checks.as_flag,
    "area_weighted": checks.as_flag,
}
TERM_FIELDS: dict[str, checks.Check] = {
    **CONVOLUTION_FIELDS,
    "dtype": partial(checks.as_choice, known=STORED_DTYPES),
    "aggregate": partial(checks.as_choice, known=AGGREGATES),
    "jitter": partial(checks.as_number, least=0.0, most=1.0),
}
STEP_FIELDS: tuple[checks.Check, ...] = (
    partial(checks.as_integer, least=0),
    checks.as_string,
    checks.as_number,
    partial(checks.as_number, least=0.0),
)


def as_variance(where: str, value: Any) -> float:
    """A variance that neither vanishes nor overflows in products."""
    return checks.as_number(where, value, MIN_VARIANCE, MAX_VARIANCE)


def as_domain_kind(where: str, value: Any) -> str:
    """The name of an imported subclass of `Domains`."""
    name = checks.as_string(where, value)
    if name not in Domains.kinds:
        raise checks.invalid(
            where, name, f"one of {', '.join(Domains.kinds)}; import the module that defines the domain first"
        )
    return name


def as_signature(where: str, value: Any) -> dict[str, Any]:
    """A signature of domains: scalars and short lists of integers by name; see `Domains.signature`."""
    if not isinstance(value, dict) or len(value) > MAX_SIGNATURE_ITEMS:
        raise checks.invalid(where, value, f"an object with at most {MAX_SIGNATURE_ITEMS} keys")
    for key, item in value.items():
        field = f"{where}.{checks.as_string(where, key, 100)}"
        for number in checks.as_list(field, item, 1, MAX_SIGNATURE_ITEMS) if isinstance(item, list) else ():
            checks.as_integer(field, number, 0)
        checks.as_nested(field, item)
    dimensions = value.get("position_dimensions")
    checks.as_integer(f"{where}.position_dimensions", dimensions, 0, MAX_SIGNATURE_ITEMS)
    return value


def describe_history(history: Sequence[Step]) -> list[list[Any]]:
    """The steps of a fit as lists."""
    return [list(astuple(step)) for step in history]


def rebuild_history(where: str, description: Any) -> list[Step]:
    """The steps that `describe_history` described."""
    steps = []
    for i, row in enumerate(checks.as_list(where, description)):
        checks.as_list(f"{where}[{i}]", row, 4, 4)
        steps.append(Step(*(check(f"{where}[{i}][{j}]", row[j]) for j, check in enumerate(STEP_FIELDS))))
    return steps


def check_likelihood(where: str, likelihood: Any, task: str, latents: int) -> None:
    """Raise unless this is a likelihood for the task, with finite probabilities of this number of classes."""
    if not isinstance(likelihood, Likelihood) or likelihood.task != task:
        raise checks.invalid(where, likelihood, f"a likelihood for {task}")
    if task == "classification":
        zeros = torch.zeros(1, latents, dtype=torch.float64)
        probabilities = likelihood.probabilities(zeros, zeros + 1)
        if probabilities.shape != zeros.shape or not torch.isfinite(probabilities).all():
            raise checks.invalid(where, likelihood, "a likelihood with finite probabilities of all classes")


def rebuild_start_weightings(where: str, description: Any) -> list[Weighting] | None:
    """A list of weightings that `plain_parameter` described, or None."""
    weightings = parameter(where, description)
    if weightings is None:
        return None
    if not isinstance(weightings, list) or not all(isinstance(item, Weighting) for item in weightings):
        raise checks.invalid(where, description, "a list of weightings, or null")
    return [weighting.requires_grad_(False) for weighting in weightings]


def describe_term(term: Term) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A term of the features: its description, and its tensors by name."""
    convolution, kernel = term.convolution, term.kernel
    description = {
        **{name: getattr(convolution, name) for name in CONVOLUTION_FIELDS},
        "dtype": str(convolution.dtype).removeprefix("torch."),
        "aggregate": kernel.aggregate,
        "jitter": term.jitter,
        "weighting": describe_weighting(convolution.weighting),
        "kernel": describe_kernel(kernel.base),
    }
    tensors = {
        "inducing": term.inducing,
        "root": term.root,
        **with_prefix("weighting.", module_state(convolution.weighting)),
        **with_prefix("kernel.", module_state(kernel.base)),
    }
    if kernel.vertex_weights is not None:
        tensors["vertex_weights"] = kernel.vertex_weights
    description["layers"] = []
    for i, layer in enumerate(convolution.layers):
        layer_description, layer_tensors = describe_layer(layer)
        description["layers"].append(layer_description)
        tensors |= with_prefix(f"layers.{i}.", layer_tensors)
    return description, tensors


def rebuild_term(
    where: str,
    description: Any,
    tensors: dict[str, Tensor],
    domain: type[Domains],
    signature: Mapping[str, Any],
    channels: int,
) -> Term:
    """The term that `describe_term` described, for signals with these channels on this kind of domain."""
    checks.as_object(where, description, (*TERM_FIELDS, "weighting", "kernel", "layers"))
    fields = {name: check(f"{where}.{name}", description[name]) for name, check in TERM_FIELDS.items()}
    has_areas = domain.measure is not Domains.measure
    if fields["area_weighted"] and not has_areas:
        raise checks.invalid(f"{where}.area_weighted", True, f"false: {domain.__name__} have no areas")
    dtype = STORED_DTYPES[fields["dtype"]]
    states = {name: take_prefix(tensors, f"{name}.") for name in ("weighting", "kernel")}
    inducing = checked_tensor(f"{where}.inducing", tensors.pop("inducing", None), (None, None), dtype)
    count, columns = inducing.shape
    if not (inducing.abs() <= (torch.finfo(dtype).max / columns) ** 0.5 / 4).all():
        raise ValueError(f"{where}.inducing: values whose squared distances overflow")
    weighting = rebuild_weighting(f"{where}.weighting", description["weighting"], states["weighting"])
    base = rebuild_kernel(f"{where}.kernel", description["kernel"], states["kernel"], columns)
    if any(parameter.dtype != dtype for parameter in base.parameters()):
        raise ValueError(f"{where}.kernel: the dtype of the stored tensors is not {dtype}")
    weights = tensors.pop("vertex_weights", None)
    if weights is not None:
        checked_tensor(f"{where}.vertex_weights", weights, (None,), dtype)
    kernel = ConvolutionalKernel(base, fields["aggregate"], weights).requires_grad_(False)
    layers = []
    for i, layer in enumerate(checks.as_list(f"{where}.layers", description["layers"], 0, MAX_LAYERS)):
        layer_tensors = take_prefix(tensors, f"layers.{i}.")
        name = f"{where}.layers[{i}]"
        layers.append(rebuild_layer(name, layer, layer_tensors, domain, channels, dtype, has_areas=has_areas))
        channels = layers[-1].channels
        domain = domain if layers[-1].pool is None else Points
    convolution = layered(
        Convolution(weighting, **{name: fields[name] for name in CONVOLUTION_FIELDS}, dtype=dtype), layers
    )
    _check_columns(where, convolution, columns, channels, domain, signature["position_dimensions"])
    root = checked_tensor(f"{where}.root", tensors.pop("root", None), (count, count), torch.float64)
    _check_root(f"{where}.root", kernel, inducing, root)
    check_all_used(where, tensors)
    return Term(convolution, kernel, inducing, fields["jitter"]).with_root(root)


def _check_columns(
    where: str, convolution: Convolution, columns: int, channels: int, domain: type[Domains], dimensions: int
) -> None:
    """Raise unless the weighting suits the domain and its patches have this number of columns."""
    weighting = convolution.weighting
    for name in weighting.coordinates:
        if not re.fullmatch(pattern := domain.coordinate_pattern, name):
            raise checks.invalid(f"{where}.weighting: coordinate", name, f"one of {pattern}")
    checks.as_number(f"{where}.weighting: reach", weighting.reach, 0.0)
    bins = checks.as_integer(f"{where}.weighting: bins", weighting.bins, 1, columns)
    expected = bins * (channels + convolution.bin_counts) + convolution.position * dimensions
    if columns != expected:
        raise ValueError(f"{where}: inducing patches have {columns} columns, but the patches {expected}")


def _check_root(where: str, kernel: ConvolutionalKernel, inducing: Tensor, root: Tensor) -> None:
    """Raise unless the stored matrix is a Cholesky factor of Kuu.

    All rows are compared, or in large models some. Jitter may have been added to the diagonal.
    """
    if not (root.diagonal() > 0).all():
        raise ValueError(f"{where}: the diagonal of a Cholesky factor must be positive")
    size = len(root)
    rows = torch.linspace(0, size - 1, min(size, MAX_COMPARED_KUU_ROWS), dtype=torch.float64).round().long()
    with torch.no_grad():
        kuu = copy.deepcopy(kernel).double().kuu(inducing[rows].double())
        difference = root[rows] @ root[rows].T - kuu
    scale = kuu.diagonal().mean()
    jitter = difference.diagonal().clone()
    difference.fill_diagonal_(0.0)
    close = (difference.abs() <= KUU_TOLERANCE * scale).all() & (scale > 0) & (scale <= MAX_POSTERIOR_WEIGHT)
    allowed = (jitter >= -KUU_TOLERANCE * scale) & (jitter <= (2 * LARGEST_JITTER + KUU_TOLERANCE) * scale)
    if not (close and allowed.all()):
        raise ValueError(f"{where}: the stored factor is not that of the kernel between the inducing patches")


def rebuild_posterior(where: str, tensors: dict[str, Tensor], size: int, variance: float) -> Posterior:
    """The posterior on `size` features with the stored tensors `weights` and `roots`."""
    weights = checked_tensor(f"{where}.weights", tensors.pop("weights", None), (size, None), torch.float64)
    shape = (weights.shape[1], size, size)
    roots = checked_tensor(f"{where}.roots", tensors.pop("roots", None), shape, torch.float64)
    check_all_used(where, tensors)
    if not (roots.diagonal(dim1=1, dim2=2) > 0).all():
        raise ValueError(f"{where}.roots: the diagonals of the Cholesky factors must be positive")
    if not (weights.abs() <= MAX_POSTERIOR_WEIGHT).all():
        raise ValueError(f"{where}.weights: values above {MAX_POSTERIOR_WEIGHT:g}")
    posterior = Posterior(variance, weights, roots)
    generator = torch.Generator().manual_seed(0)
    probes = torch.randn(VARIANCE_PROBES, size, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        explained = posterior.explained_variance(probes)
    if not (explained <= MAX_VARIANCE).all():  # false for NaN, too
        raise ValueError(f"{where}.roots: the posterior variances overflow")
    return posterior
