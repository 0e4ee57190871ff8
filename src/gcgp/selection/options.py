"""What a user can specify of a model: small option objects for patches, kernel, aggregation and learning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gpytorch.kernels import Kernel

from gcgp._runtime.errors import (
    check_auto_or_bool,
    check_choice,
    check_integer,
    check_positive,
    unknown_option,
)
from gcgp._runtime.options import Options, resolve_option
from gcgp.descriptors import SpectralDescriptor
from gcgp.inference.likelihoods import Likelihood
from gcgp.inference.method import OBJECTIVES, InferenceMethod
from gcgp.kernel.base import KERNEL_NAMES
from gcgp.kernel.convolutional import AGGREGATES
from gcgp.layers import Layer
from gcgp.selection.optimizer import OPTIMIZERS

Chain = tuple[Layer, ...]
"""The layers before the weighting of a term."""
MIN_DEFAULT_INDUCING, MAX_DEFAULT_INDUCING = 750, 1_500
"""Inducing patches per scale: few and many training signals."""
MAX_POOLED_INDUCING = 3_000
"""Inducing patches of all scales together if layers pool signals."""
LEARNED_BY_DEFAULT = (
    "lengthscale",
    "variance",
    "radii",
    "radial_width",
    "along",
    "across",
    "means",
    "scales",
    "layers.lengthscale",
    "layers.radii",
    "layers.radial_width",
)
"""What `learn=True` learns, where the model has it, beside the parameter of the likelihood."""


@dataclass(eq=False, repr=False)
class Patch(Options):
    """What a patch contains beside the weighted bins of the signal.

    Args:
        position: Whether the coordinates of the vertex are part of its patch; a number is their lengthscale
            in units of the coordinates. `"auto"`: if that improves the leave-one-out likelihood.
        bin_counts: Whether the sum of the weights of each bin is part of the patch. `"auto"`: on graphs
            without coordinates.
        area_weighted: Whether vertices count by the area around them. `"auto"`: on meshes.
        scale_channels: Whether each channel is divided by its standard deviation over the training signals,
            for channels with different units. `"auto"`: if a search finds that it helps.

    >>> Patch(position=False)
    Patch(position=False)
    """

    position: bool | float | str = "auto"
    bin_counts: bool | str = "auto"
    area_weighted: bool | str = "auto"
    scale_channels: bool | str = "auto"

    def validate(self) -> None:
        """Raise a ValueError that names the first field with an invalid value."""
        if not isinstance(self.position, (bool, np.bool_)):
            check_positive("position", self.position)
        check_auto_or_bool("bin_counts", self.bin_counts)
        check_auto_or_bool("area_weighted", self.area_weighted)
        check_auto_or_bool("scale_channels", self.scale_channels)


@dataclass(eq=False, repr=False)
class PatchKernel(Options):
    """The kernel k_g between patches.

    Args:
        kind: `"rbf"`, `"matern12"`, `"matern32"`, `"matern52"`, or any GPyTorch kernel, which is used as it
            is. `"auto"`: `"rbf"`, unless a search finds a better one.
        lengthscale: Of the bins, in their units. `"auto"`: selected by the leave-one-out likelihood.
        variance: Variance of the GP, which multiplies the kernel. `"auto"`: selected.
        rotation_average: Whether the kernel is averaged over rotations of the directions of a patch.
            `"auto"`: on meshes, where the first direction is arbitrary.

    >>> PatchKernel("matern32", lengthscale=0.5)
    PatchKernel(kind='matern32', lengthscale=0.5)
    """

    kind: str | Kernel = "auto"
    lengthscale: float | str = "auto"
    variance: float | str = "auto"
    rotation_average: bool | str = "auto"

    def validate(self) -> None:
        """Raise a ValueError that names the first field with an invalid value."""
        named = isinstance(self.kind, str) and self.kind in ("auto", *KERNEL_NAMES)
        if not named and not isinstance(self.kind, Kernel):
            raise unknown_option("kernel", self.kind, ("auto", *KERNEL_NAMES, "any gpytorch.kernels.Kernel"))
        check_positive("lengthscale", self.lengthscale)
        check_positive("variance", self.variance)
        check_auto_or_bool("rotation_average", self.rotation_average)


@dataclass(eq=False, repr=False)
class Aggregate(Options):
    """How the function g of all patches of a signal is combined.

    Args:
        kind: `"mean"` over vertices, for signals of different sizes, or `"sum"`, as in the paper. A sum over
            signals of different sizes adds a constant term to the kernel, so that f need not be proportional
            to the size. `"auto"`: `"mean"`, unless a search finds that the sum is better.
        vertex_weights: One weight per vertex of a domain that all signals share, `[V]`.
    """

    kind: str = "auto"
    vertex_weights: Any = None

    def validate(self) -> None:
        """Raise a ValueError that names the first field with an invalid value."""
        check_choice("aggregate", self.kind, ("auto", *AGGREGATES))


@dataclass(eq=False, repr=False)
class Learn(Options):
    """Gradient-based learning of what is otherwise fixed or searched.

    Args:
        parameters: Names of the parameters to learn; None stands for lengthscale, variance, radii, widths
            and the parameter of the likelihood. Others are `"lengthscales"` (one per column), `"position"`,
            `"angles"`, `"angular_width"`, `"vertex_weights"`, `"inducing"`; the error for an unknown name
            lists all. Names of parameters of layers begin with `layers.`: `"layers.lengthscale"` and
            `"layers.radii"`, which None includes, `"layers.anchors"`.
        objective: What is maximized: the `"leave-one-out"` log likelihood of training signals (`"auto"`), or
            the collapsed `"bound"`.
        optimizer: `"l-bfgs"` or `"adam"`.
        max_iter: Iterations of the optimizer; a quarter of them with more than about 1,000 signals, where
            starts are compared on more signals and iterations take longer.
    """

    parameters: Any = None
    objective: str = "auto"
    optimizer: str = "l-bfgs"
    max_iter: int = 50

    def validate(self) -> None:
        """Raise a ValueError that names the first field with an invalid value."""
        self.names("")
        check_choice("objective", self.objective, OBJECTIVES)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_integer("max_iter", self.max_iter)

    def names(self, likelihood_parameter: str) -> tuple[str, ...]:
        """Names of the parameters to learn; whether the model has them is checked once it is known."""
        option = self.parameters
        if option is None:
            return (*LEARNED_BY_DEFAULT, likelihood_parameter)
        if not isinstance(option, Iterable):
            raise TypeError(f"learn={option!r}: expected True, None, a name, or a list of names")
        names = (option,) if isinstance(option, str) else tuple(option)
        for name in names:
            if not isinstance(name, str):
                raise ValueError(f"learn={option!r}: {name!r} is not the name of a parameter")
        return names


def resolve_learn(value: Any) -> Learn | None:
    """The `Learn` that an estimator's argument `learn` stands for: None, True, names, or a `Learn`."""
    if value is None or value is False:
        return None
    learn = value if isinstance(value, Learn) else Learn(None if value is True else value)
    learn.validate()
    return learn


@dataclass(frozen=True)
class ModelOptions:
    """The options of an estimator, resolved and validated: all that a fit is told about the model."""

    weighting: Any
    chart: str
    patch: Patch
    kernel: PatchKernel
    aggregate: Aggregate
    n_inducing: int
    inducing: str
    likelihood: Likelihood
    method: InferenceMethod
    learn: Learn | None
    search: str | None = None
    """How thoroughly the structure of the model is searched."""
    auto_inducing: bool = False
    """Whether the number of inducing patches is a default."""
    descriptors: Sequence[SpectralDescriptor] | None = None
    """Candidate descriptors of meshes; None: the default ones."""
    layers: tuple[Chain, ...] | None = ()
    """The layers of each term, or one chain for all; empty: no layers; None: searched."""

    @property
    def variance(self) -> float | None:
        """Variance of the GP; None: to be selected."""
        return None if self.kernel.variance == "auto" else float(self.kernel.variance)

    def inducing_per_scale(self, scales: int, *, pooled: bool = False) -> int:
        """Number of inducing patches of each of several scales; a default is limited for all together.

        If layers pool signals, these have one patch each: more inducing patches cost little.
        """
        if self.search is None or not self.auto_inducing:
            return self.n_inducing
        if pooled:
            return MAX_POOLED_INDUCING // scales
        return min(self.n_inducing, MAX_DEFAULT_INDUCING // scales)

    @property
    def trial_inducing_method(self) -> str:
        """How inducing patches are chosen while models are compared."""
        return "random" if self.inducing == "random" else "k-means++"

    def free(self, names: Iterable[str]) -> list[str]:
        """The names without those of parameters that the user has fixed."""
        closed_form = self.likelihood.closed_form()
        fixed = {"variance"} if self.variance is not None else set()
        if getattr(closed_form, closed_form.parameter) != "auto":
            fixed.add(closed_form.parameter)
        return [name for name in names if name not in fixed]


def default_inducing(count: int, search: str | None) -> int:
    """Default number of inducing patches per scale; with a search it grows with the number of signals."""
    if search is None:
        return MIN_DEFAULT_INDUCING
    return min(max(MIN_DEFAULT_INDUCING, round(1.5 * count)), MAX_DEFAULT_INDUCING)


def resolve_kernel(value: Any) -> PatchKernel:
    """The `PatchKernel` that an estimator's argument `kernel` stands for."""
    kernel = value if isinstance(value, PatchKernel) else PatchKernel(value)
    kernel.validate()
    return kernel


def resolve_aggregate(value: Any) -> Aggregate:
    """The `Aggregate` that an estimator's argument `aggregate` stands for."""
    aggregate = value if isinstance(value, Aggregate) else Aggregate(value)
    aggregate.validate()
    return aggregate


def resolve_layers(value: Any) -> tuple[Chain, ...] | None:
    """The layers of each term that an estimator's argument `layers` stands for; None if they are searched.

    A list of layers is one chain, which all terms share; in a list of lists each term has its own.

    >>> resolve_layers(None), resolve_layers("auto")
    ((), None)
    >>> resolve_layers([Layer(n_anchors=8)]), resolve_layers([[Layer(n_anchors=8)], []])
    (((Layer(n_anchors=8),),), ((Layer(n_anchors=8),), ()))
    """
    if value is None:
        return ()
    if isinstance(value, str) and value == "auto":
        return None
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if not items:
        return ()
    if not any(isinstance(item, (list, tuple)) for item in items):
        return (_checked_chain("layers", items),)
    for term, item in enumerate(items):
        if not isinstance(item, (list, tuple)):
            raise ValueError(
                f"layers[{term}]={item!r}: expected a list of the layers of a term, like the others"
            )
    return tuple(_checked_chain(f"layers[{term}]", item) for term, item in enumerate(items))


def _checked_chain(name: str, layers: Sequence[Any]) -> Chain:
    for i, layer in enumerate(layers):
        if not isinstance(layer, Layer):
            raise ValueError(f"{name}[{i}]={layer!r}: expected a Layer; layers may be None, 'auto' or a list")
        try:
            layer.validate()
        except ValueError as error:
            raise ValueError(f"{name}[{i}]: {error}") from error
    return tuple(layers)


def resolve_patch(value: Any) -> Patch:
    """The `Patch` that an estimator's argument `patch` stands for."""
    return resolve_option("patch", Patch() if value is None else value, Patch, {"auto": Patch})
