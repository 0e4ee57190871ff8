"""The base class of weightings: parameters with constraints, scikit-learn's parameter contract, and bins."""

from __future__ import annotations

import copy
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import Positive
from jaxtyping import Float, Int
from torch import Tensor

CENTER_PARAMETERS = ("radii",)
WIDTH_PARAMETERS = ("radial_width", "along", "across")
MAX_ITEMS_IN_REPR = 6

ArgumentTypes: TypeAlias = Mapping[str, int | type]
BinWeights: TypeAlias = Float[Tensor, "pairs bins"]
Factors: TypeAlias = tuple[Float[Tensor, "pairs K"], Float[Tensor, "pairs J"]]


class Weighting(gpytorch.Module, ABC):
    """A family of soft bins u_b(v, v') over the local coordinates of a neighbor.

    A new family names the `coordinates` it reads, defines `bins`, `reach` and `forward`, and stores each
    argument of its constructor in an attribute of the same name, or in a torch parameter by `learnable`.
    """

    coordinates: ClassVar[tuple[str, ...]]
    argument_types: ClassVar[ArgumentTypes] = {"normalize": bool}
    """The type of each constructor argument, by which model files are checked.

    An integer is the number of dimensions of an array of numbers (0: a number), `int` a size of at least 1,
    `bool` a flag, `str` a string and `list` a list of strings. Arguments not listed may be any JSON value.
    A family lists only arguments that its base class does not have.
    """
    length_parameters: ClassVar[tuple[str, ...]] = (*CENTER_PARAMETERS, *WIDTH_PARAMETERS)
    """Parameters that are lengths in the units of ρ, if the family has them."""

    normalize: bool
    """Divide each bin by the sum of its weights: a weighted average instead of a sum."""
    complete = False
    """Whether vertices with an empty bin are left out."""

    def __init__(self, normalize: bool) -> None:
        super().__init__()
        self.normalize = bool(normalize)
        self._shorthand: dict[str, Any] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.argument_types = {**super(cls, cls).argument_types, **cls.argument_types}

    @property
    @abstractmethod
    def bins(self) -> int:
        """Number of bins."""

    @property
    @abstractmethod
    def reach(self) -> float:
        """The distance ρ beyond which neighbors are ignored."""

    @property
    def rotations(self) -> Int[Tensor, "J bins"] | None:
        """For each rotation by s directions, the bin in the place of each bin; None: no directions."""
        return None

    @property
    def raw_tensors(self) -> dict[str, Tensor]:
        """The torch parameters, by the names of what they represent."""
        return {name.removeprefix("raw_"): tensor for name, tensor in self.named_parameters()}

    @abstractmethod
    def forward(self, *coordinates: Float[Tensor, "pairs ..."]) -> BinWeights:
        """Weight of each pair in each bin, before normalization."""

    def factors(self, *coordinates: Float[Tensor, "pairs ..."]) -> Factors | None:
        """Two factors whose product is the weight of bin k·J + j, or None if the weights do not factorize.

        Patches are computed from the factors, which are fewer numbers than the weights.
        """
        return None

    def zoomed(self, factor: float) -> Weighting | None:
        """A copy with all lengths multiplied by `factor`; None if the family has no lengths."""
        zoomed = copy.deepcopy(self)
        names = [f"raw_{name}" for name in self.length_parameters if hasattr(self, f"raw_{name}")]
        with torch.no_grad():
            for name in names:
                raw = getattr(zoomed, name)
                positive = self.constraint_for_parameter_name(name) is not None
                raw.copy_(raw + math.log(factor) if positive else raw * factor)
        return zoomed if names else None

    def learnable(self, name: str, value: Any, *, positive: bool = False, given: Any = ...) -> None:
        """Register the parameter `name`, stored as its logarithm if it is positive.

        `given` is the constructor argument if the value was derived from it: None, a count or one number.
        """
        try:
            tensor = torch.as_tensor(value, dtype=torch.float64).clone()
        except (RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"{type(self).__name__}: {name}={value!r} must be numbers") from error
        if tensor.numel() == 0 or not torch.isfinite(tensor).all() or (positive and (tensor <= 0).any()):
            kind = "positive" if positive else "finite"
            raise ValueError(f"{type(self).__name__}: {name}={value!r} must be {kind} and not empty")
        if given is None or (given is not ... and np.ndim(given) < tensor.ndim):
            self._shorthand[name] = given
        raw = f"raw_{name}"
        self.register_parameter(raw, torch.nn.Parameter(tensor.log() if positive else tensor))
        if positive:
            self.register_constraint(raw, Positive(transform=torch.exp, inv_transform=torch.log))

    def __getattr__(self, name: str) -> Any:
        parameters = self.__dict__.get("_parameters", {})
        if f"raw_{name}" in parameters:
            raw = parameters[f"raw_{name}"]
            constraint = self.constraint_for_parameter_name(f"raw_{name}")
            return raw if constraint is None else constraint.transform(raw)
        return super().__getattr__(name)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor arguments for a weighting like this one, as numbers, strings and lists."""
        return {name: _plain(getattr(self, name)) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Weighting:
        """Initialize again with changed constructor arguments.

        Arguments that were None, a count or one number, and still determine the parameter, stay so.
        """
        arguments = self._arguments()
        for name in params.keys() - arguments:
            raise ValueError(f"{type(self).__name__} has no parameter {name!r}, only {', '.join(arguments)}")
        self.__dict__.update(type(self)(**arguments | params).__dict__)
        return self

    def _arguments(self) -> dict[str, Any]:
        """Like `get_params`, but in the shorthand given to the constructor if that has the same result."""
        arguments, short = self.get_params(), self._shorthand
        derived = type(self)(**arguments | short).get_params() if short else {}
        same = {name: short[name] for name in short if _close(arguments[name], derived[name])}
        return arguments | same

    def __sklearn_clone__(self) -> Weighting:
        return copy.deepcopy(self)

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        arguments = [
            f"{name}={_short(value)}"
            for name, value in self._arguments().items()
            if not _close(value, _plain(defaults[name]))
        ]
        return f"{type(self).__name__}({', '.join(arguments)})"


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().tolist()
    return list(value) if isinstance(value, tuple) else value


def _close(a: Any, b: Any) -> bool:
    """Whether two arguments are equal up to rounding to float32."""
    arrays = (np.asarray(a), np.asarray(b))
    if arrays[0].shape != arrays[1].shape or any(array.dtype.kind not in "if" for array in arrays):
        return type(a) is type(b) and bool(a == b)
    return np.allclose(*arrays, rtol=1e-6, atol=0)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        items = [_short(item) for item in value]
        if len(items) > MAX_ITEMS_IN_REPR:
            items = [*items[:2], "...", items[-1]]
        return f"[{', '.join(items)}]"
    return repr(value)
