"""The parameters of a model that can be learned, as one vector of comparable numbers that starts at zero."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from gpytorch import Module
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from gcgp.inference.features import Term
from gcgp.inference.shapes import Scalar
from gcgp.kernel import RotationAverage
from gcgp.kernel.base import lengthscale_parts
from gcgp.layers import FittedLayer, LayeredConvolution
from gcgp.patches import Convolution

MAX_LOG_LENGTHSCALE_CHANGE = 6.0 * math.log(2)
"""Lengthscales, widths and the like may change by up to six octaves."""
MAX_LOG_SCALAR_CHANGE = 4 * math.log(10)
"""The variance of the GP, noise and α_ε may change by up to four decades."""
REACH_MARGIN = 1.3
"""How much further charts reach than the bins do at the start of learning."""
MIN_DEVIATION = 1e-6
"""The smallest unit in which columns of inducing patches and anchors change."""
LAYER_PREFIX = "layers."
"""Names of parameters of layers begin with it."""
LENGTHSCALE_NAMES = ("lengthscale", "lengthscales", "position")


@dataclass(frozen=True)
class TrainableParameter:
    """Numbers x that are zero at the start, and the raw tensor of a module that they determine."""

    names: tuple[str, ...]
    """Names under which users ask for it."""
    tensor: Tensor
    raw: Callable[[Float[Tensor, "k"]], Tensor]
    """The value of the tensor at x."""
    size: int
    low: Sequence[float] | float = -math.inf
    high: float = math.inf


@dataclass(frozen=True)
class Parameters:
    """Several parameters as one vector x."""

    parts: Sequence[TrainableParameter]

    @property
    def size(self) -> int:
        """Length of x."""
        return sum(part.size for part in self.parts)

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """Lower and upper bound of each number."""
        return [
            (low, part.high)
            for part in self.parts
            for low in (part.low if isinstance(part.low, Sequence) else [part.low] * part.size)
        ]

    def set(self, x: Float[np.ndarray, "k"]) -> None:
        """Write the values at x into the modules."""
        with torch.no_grad():
            for part, numbers in zip(self.parts, self._split(x), strict=True):
                part.tensor.copy_(part.raw(numbers))

    def gradient(self, x: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
        """The gradient by x that follows from the `grad` of the tensors, which is cleared."""
        gradients = []
        for part, numbers in zip(self.parts, self._split(x), strict=True):
            leaf = numbers.clone().requires_grad_()
            with torch.enable_grad():
                raw = part.raw(leaf)
            grad = torch.zeros_like(part.tensor) if part.tensor.grad is None else part.tensor.grad
            gradients.append(torch.autograd.grad(raw, leaf, grad.to(raw.dtype))[0])
            part.tensor.grad = None
        return torch.cat(gradients).numpy() if gradients else np.zeros(0)

    def _split(self, x: Float[np.ndarray, "k"]) -> Sequence[Float[Tensor, "part"]]:
        return torch.split(torch.as_tensor(x, dtype=torch.float64), [part.size for part in self.parts])


def log_priors(kernels: Sequence[Module]) -> Scalar:
    """The sum of the log densities of all GPyTorch priors on parameters of the kernels."""
    logs = [
        prior.log_prob(closure(module)).sum().double()
        for kernel in kernels
        for _, module, prior, closure, _ in kernel.named_priors()
    ]
    return torch.stack(logs).sum() if logs else torch.zeros((), dtype=torch.float64)


def scalar_parameter(name: str, logarithm: Scalar) -> TrainableParameter:
    """A positive number that is represented by its logarithm."""
    limit = MAX_LOG_SCALAR_CHANGE
    return _shifted((name,), logarithm, 1.0, -limit, limit)


def trainable_term(
    term: Term, names: Sequence[str], columns: Mapping[str, slice]
) -> tuple[Term, list[TrainableParameter]]:
    """A copy of the term with its own weighting, and its parameters with these names, ready for gradients."""
    convolution = _trainable_convolution(term.convolution)
    if isinstance(convolution, LayeredConvolution):
        layers = [
            replace(
                layer,
                convolution=_trainable_convolution(layer.convolution),
                anchors=layer.anchors.clone(),
                lengthscale=layer.lengthscale.clone(),
            )
            for layer in convolution.layers
        ]
        convolution = replace(convolution, layers=tuple(layers))
    term = replace(term, convolution=convolution, inducing=term.inducing.clone())
    parameters = term_parameters(term, names, columns)
    for parameter in parameters:
        parameter.tensor.requires_grad_(True)
    return term, parameters


def _trainable_convolution(convolution: Convolution) -> Convolution:
    """A copy with a weighting of its own, whose charts reach further than its bins do now."""
    weighting = copy.deepcopy(convolution.weighting)
    return replace(convolution, weighting=weighting, reach=REACH_MARGIN * weighting.reach)


def frozen_term(term: Term) -> Term:
    """The term with its present values and without gradients."""
    return replace(
        term,
        convolution=frozen_convolution(term.convolution),
        kernel=term.kernel.requires_grad_(False),
        inducing=term.inducing.detach(),
    )


def frozen_convolution(convolution: Convolution) -> Convolution:
    """The convolution with its present values and without gradients."""
    weighting = convolution.weighting.requires_grad_(False)
    frozen = replace(convolution, weighting=weighting, reach=None)
    if isinstance(frozen, LayeredConvolution):
        return replace(frozen, layers=tuple(layer.frozen() for layer in frozen.layers))
    return frozen


def learnable_names(term: Term, columns: Mapping[str, slice], named_kernel: bool) -> list[str]:
    """Names of all parameters of a term; `named_kernel` says whether its kernel was given by name."""
    averaged = isinstance(term.kernel.base, RotationAverage)
    names = ["lengthscale"]
    if named_kernel and not averaged:
        names.append("lengthscales")
    if "position" in columns and named_kernel:
        names.append("position")
    if not term.convolution.pooled:  # otherwise one vertex is left, whose weight makes no difference
        tensors = term.convolution.weighting.raw_tensors
        names += [name for name in tensors if not (averaged and name == "angles")]
    for layer in term.convolution.layers:
        names += [f"{LAYER_PREFIX}{name}" for name in layer.learnable if not _is_arbitrary(layer, name)]
    if term.kernel.vertex_weights is not None:
        names.append("vertex_weights")
    return [*names, "inducing"]


def term_parameters(
    term: Term, names: Sequence[str], columns: Mapping[str, slice]
) -> list[TrainableParameter]:
    """The parameters of a term with these names; names that it does not have are ignored.

    `columns` are those of its patches: the position has a lengthscale of its own.
    """
    parameters = _lengthscale_parameters(term.kernel.base, names, columns)
    if not term.convolution.pooled:
        parameters += _weighting_parameters(term.convolution, names)
    for layer in term.convolution.layers:
        parameters += _layer_parameters(layer, names)
    weights = term.kernel.vertex_weights
    if "vertex_weights" in names and weights is not None:
        parameters.append(_shifted(("vertex_weights",), weights, float(weights.detach().abs().mean()) or 1.0))
    if "inducing" in names:
        deviation = term.inducing.detach().double().std(dim=0, correction=0).clamp_min(MIN_DEVIATION)
        parameters.append(_shifted(("inducing",), term.inducing, deviation))
    return parameters


def _is_arbitrary(layer: FittedLayer, name: str) -> bool:
    """Whether a kernel averaged over rotations makes a parameter meaningless."""
    return layer.rotation_average and name == "angles"


def _layer_parameters(layer: FittedLayer, names: Sequence[str]) -> list[TrainableParameter]:
    """The parameters of a layer whose names, with a prefix, are among these."""
    own = [name.removeprefix(LAYER_PREFIX) for name in names if name.startswith(LAYER_PREFIX)]
    own = [name for name in own if not _is_arbitrary(layer, name)]
    parameters = _weighting_parameters(layer.convolution, own)
    if "anchors" in own:
        deviation = layer.anchors.double().std(dim=0, correction=0).clamp_min(MIN_DEVIATION)
        parameters.append(_shifted(("anchors",), layer.anchors, deviation))
    if "lengthscale" in own:
        start, limit = float(layer.lengthscale), MAX_LOG_LENGTHSCALE_CHANGE

        def raw(x: Tensor) -> Tensor:
            return start * x.exp().reshape(())

        parameters.append(TrainableParameter(("lengthscale",), layer.lengthscale, raw, 1, -limit, limit))
    return [replace(part, names=tuple(f"{LAYER_PREFIX}{name}" for name in part.names)) for part in parameters]


def _lengthscale_parameters(
    kernel: Kernel, names: Sequence[str], columns: Mapping[str, slice]
) -> list[TrainableParameter]:
    requested = tuple(name for name in LENGTHSCALE_NAMES if name in names)
    if not requested:
        return []
    parts = lengthscale_parts(kernel)
    if not parts:  # a kernel that the user has given: all of its parameters
        return [
            _shifted(("lengthscale",), tensor) for tensor in kernel.parameters() if "lengthscale" in names
        ]
    total = max(part.stop for part in columns.values())
    position = torch.zeros(total, dtype=torch.bool)
    if "position" in columns:
        position[columns["position"]] = True
    directions = []
    if "lengthscales" in names:
        identity = torch.eye(total, dtype=torch.float64)
        directions += [identity[i] for i in torch.nonzero(~position)[:, 0].tolist()]
    elif "lengthscale" in names:
        directions.append((~position).double())
    if "position" in names and position.any():
        directions.append(position.double())
    parameters = []
    for part, dims in parts:
        basis = torch.stack(directions, dim=1)[dims]
        basis = basis[:, basis.any(dim=0)]
        if basis.shape[1] == 0:
            continue
        start = part.lengthscale.detach().double().clone()

        def raw(x: Tensor, basis: Tensor = basis, start: Tensor = start, part: Kernel = part) -> Tensor:
            return part.raw_lengthscale_constraint.inverse_transform(start * torch.exp(basis @ x))

        limit = MAX_LOG_LENGTHSCALE_CHANGE
        parameters.append(
            TrainableParameter(requested, part.raw_lengthscale, raw, basis.shape[1], -limit, limit)
        )
    return parameters


def _weighting_parameters(convolution: Convolution, names: Sequence[str]) -> list[TrainableParameter]:
    weighting = convolution.weighting
    tensors = weighting.raw_tensors
    widths = [
        tensor.detach().exp().mean()
        for name, tensor in tensors.items()
        if name in ("radial_width", "along", "scales")
    ]
    parameters = []
    for name, tensor in tensors.items():
        if name not in names:
            continue
        positive = weighting.constraint_for_parameter_name(f"raw_{name}") is not None
        is_distance = name in ("radii", "means") and widths and not positive
        unit = float(widths[0]) if is_distance else 1.0
        low: Sequence[float] | float = -math.inf
        high = math.inf
        if positive:
            low, high = -MAX_LOG_LENGTHSCALE_CHANGE, MAX_LOG_LENGTHSCALE_CHANGE
        elif name == "radii":  # a negative radius would be a narrower bin at the center
            low = (-tensor.detach().double().clamp_min(0.0) / unit).tolist()
        parameters.append(_shifted((name,), tensor, unit, low, high))
    return parameters


def _shifted(
    names: tuple[str, ...],
    tensor: Tensor,
    unit: float | Tensor = 1.0,
    low: Sequence[float] | float = -math.inf,
    high: float = math.inf,
) -> TrainableParameter:
    """The tensor plus x in the given unit."""
    start = tensor.detach().double().clone()
    return TrainableParameter(
        names, tensor, lambda x: start + unit * x.reshape(start.shape), start.numel(), low, high
    )
