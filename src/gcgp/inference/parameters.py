"""What can be learned of a model, as one vector of numbers of about the same size that starts at zero."""

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
from gcgp.kernel import RotationAverage
from gcgp.kernel.base import lengthscale_parts

MOST_OCTAVES = 6.0
"""Lengthscales, widths and the like may grow or shrink by this power of two."""
MOST_DECADES = 4 * math.log(10)
"""And the GP's variance, noise or α_ε by this factor's logarithm."""
REACH_MARGIN = 1.3
"""How much further charts reach than the bins do at the start of learning."""


@dataclass(frozen=True)
class TrainableParameter:
    """Some numbers x, zero at the start, and the raw tensor of a module that follows from them."""

    names: tuple[str, ...]
    """Which of the things that can be learned it stands for."""
    tensor: Tensor
    raw: Callable[[Float[Tensor, "k"]], Tensor]
    """The tensor's value at x."""
    size: int
    low: Sequence[float] | float = -math.inf
    high: float = math.inf


@dataclass(frozen=True)
class Parameters:
    """Knobs side by side."""

    knobs: Sequence[TrainableParameter]

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return sum(knob.size for knob in self.knobs)

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """The least and the largest value of each number."""
        return [
            (low, knob.high)
            for knob in self.knobs
            for low in (knob.low if isinstance(knob.low, Sequence) else [knob.low] * knob.size)
        ]

    def set(self, x: Float[np.ndarray, "k"]) -> None:
        """Write the values at x into the modules."""
        with torch.no_grad():
            for knob, part in zip(self.knobs, self._parts(x), strict=True):
                knob.tensor.copy_(knob.raw(part))

    def gradient(self, x: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
        """What the tensors' `grad` means for the numbers at x; the grads are cleared."""
        pulled = []
        for knob, part in zip(self.knobs, self._parts(x), strict=True):
            at = part.clone().requires_grad_()
            with torch.enable_grad():
                raw = knob.raw(at)
            grad = torch.zeros_like(knob.tensor) if knob.tensor.grad is None else knob.tensor.grad
            pulled.append(torch.autograd.grad(raw, at, grad.to(raw.dtype))[0])
            knob.tensor.grad = None
        return torch.cat(pulled).numpy() if pulled else np.zeros(0)

    def _parts(self, x: Float[np.ndarray, "k"]) -> Sequence[Float[Tensor, "part"]]:
        return torch.split(torch.as_tensor(x, dtype=torch.float64), [knob.size for knob in self.knobs])


def log_priors(kernels: Sequence[Module]) -> Float[Tensor, ""]:
    """The sum of the log densities of all GPyTorch priors on parameters of the kernels."""
    logs = [
        prior.log_prob(closure(module)).sum().double()
        for kernel in kernels
        for _, module, prior, closure, _ in kernel.named_priors()
    ]
    return torch.stack(logs).sum() if logs else torch.zeros((), dtype=torch.float64)


def scalar_parameter(name: str, logarithm: Float[Tensor, ""]) -> TrainableParameter:
    """A positive number that is kept as its logarithm."""
    start = logarithm.detach().clone()
    return TrainableParameter((name,), logarithm, lambda x: start + x[0], 1, -MOST_DECADES, MOST_DECADES)


def trainable_term(
    term: Term, names: Sequence[str], columns: Mapping[str, slice]
) -> tuple[Term, list[TrainableParameter]]:
    """A copy of the term with its own weighting, and its parameters with these names, ready for gradients."""
    weighting = copy.deepcopy(term.convolution.weighting)
    convolution = replace(term.convolution, weighting=weighting, reach=REACH_MARGIN * weighting.reach)
    term = replace(term, convolution=convolution, inducing=term.inducing.clone())
    parameters = term_parameters(term, names, columns)
    for parameter in parameters:
        parameter.tensor.requires_grad_(True)
    return term, parameters


def frozen_term(term: Term) -> Term:
    """The term with its present values and without gradients."""
    weighting = term.convolution.weighting.requires_grad_(False)
    convolution = replace(term.convolution, weighting=weighting, reach=None)
    return replace(
        term,
        convolution=convolution,
        kernel=term.kernel.requires_grad_(False),
        inducing=term.inducing.detach(),
    )


def term_parameters(
    term: Term, names: Sequence[str], columns: Mapping[str, slice]
) -> list[TrainableParameter]:
    """The knobs of one term; what it does not have is passed over.

    `columns` are those of its patches: the lengthscale of the position is one of its own.
    """
    return [
        *_lengthscale_knobs(term.kernel.base, names, columns),
        *_weighting_knobs(term, names),
        *_plain_knobs(term, names),
    ]


def learnable_names(term: Term, columns: Mapping[str, slice], named_kernel: bool) -> list[str]:
    """What of a term can be learned."""
    names = ["lengthscale"]
    pooled = isinstance(term.kernel.base, RotationAverage)
    if named_kernel and not pooled:
        names.append("lengthscales")
    if "position" in columns and named_kernel:
        names.append("position")
    own = weighting_parameters(term)
    names += [name for name in own if not (pooled and name == "angles")]
    if term.kernel.vertex_weights is not None:
        names.append("vertex_weights")
    return [*names, "inducing"]


def weighting_parameters(term: Term) -> dict[str, Tensor]:
    """The weighting's raw parameters by the names of what they stand for."""
    named = term.convolution.weighting.named_parameters()
    return {name.removeprefix("raw_"): tensor for name, tensor in named}


def _lengthscale_knobs(
    kernel: Kernel, names: Sequence[str], columns: Mapping[str, slice]
) -> list[TrainableParameter]:
    limit = MOST_OCTAVES * math.log(2)
    wanted = {"lengthscale", "lengthscales", "position"} & set(names)
    if not wanted:
        return []
    parts = lengthscale_parts(kernel)
    if not parts:  # a kernel of the user's own: all that it has
        return [
            _shifted(("lengthscale",), tensor) for tensor in kernel.parameters() if "lengthscale" in names
        ]
    total = max(part.stop for part in columns.values())
    place = torch.zeros(total, dtype=torch.bool)
    if "position" in columns:
        place[columns["position"]] = True
    directions = []
    if "lengthscales" in names:
        directions += [torch.eye(total, dtype=torch.float64)[i] for i in torch.nonzero(~place)[:, 0].tolist()]
    elif "lengthscale" in names:
        directions.append((~place).double())
    if "position" in names and place.any():
        directions.append(place.double())
    knobs = []
    for part, dims in parts:
        basis = torch.stack(directions, dim=1)[dims]
        basis = basis[:, basis.any(dim=0)]
        if basis.shape[1] == 0:
            continue
        start = part.lengthscale.detach().double().clone()

        def raw(x: Tensor, basis: Tensor = basis, start: Tensor = start, part: Kernel = part) -> Tensor:
            return part.raw_lengthscale_constraint.inverse_transform(start * torch.exp(basis @ x))

        own = tuple(name for name in ("lengthscale", "lengthscales", "position") if name in names)
        knobs.append(TrainableParameter(own, part.raw_lengthscale, raw, basis.shape[1], -limit, limit))
    return knobs


def _weighting_knobs(term: Term, names: Sequence[str]) -> list[TrainableParameter]:
    own = weighting_parameters(term)
    widths = [
        raw.detach().exp().mean() for name, raw in own.items() if name in ("radial_width", "along", "scales")
    ]
    knobs = []
    for name, tensor in own.items():
        if name in names:
            positive = term.convolution.weighting.constraint_for_parameter_name(f"raw_{name}") is not None
            of_distances = name in ("radii", "means") and widths and not positive
            unit = float(widths[0]) if of_distances else 1.0
            low: Sequence[float] | float = -math.inf
            high = math.inf
            if positive:
                low, high = -MOST_OCTAVES * math.log(2), MOST_OCTAVES * math.log(2)
            elif name == "radii":  # a negative one would be a narrower bin at the center
                low = (-tensor.detach().double().clamp_min(0.0) / unit).tolist()
            knobs.append(_shifted((name,), tensor, unit, low, high))
    return knobs


def _plain_knobs(term: Term, names: Sequence[str]) -> list[TrainableParameter]:
    knobs = []
    if "vertex_weights" in names and term.kernel.vertex_weights is not None:
        weights = term.kernel.vertex_weights
        knobs.append(_shifted(("vertex_weights",), weights, float(weights.detach().abs().mean()) or 1.0))
    if "inducing" in names:
        spread = term.inducing.detach().double().std(dim=0, correction=0).clamp_min(1e-6)
        knobs.append(_shifted(("inducing",), term.inducing, spread))
    return knobs


def _shifted(
    names: tuple[str, ...],
    tensor: Tensor,
    unit: float | Tensor = 1.0,
    low: Sequence[float] | float = -math.inf,
    high: float = math.inf,
) -> TrainableParameter:
    start = tensor.detach().double().clone()
    return TrainableParameter(
        names, tensor, lambda x: start + unit * x.reshape(start.shape), start.numel(), low, high
    )
