"""What all weightings share: parameters with constraints, a description of themselves, and bins."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import gpytorch
import torch
from gpytorch.constraints import Positive
from jaxtyping import Float, Int
from torch import Tensor

CENTERS = ("radii",)
WIDTHS = ("radial_width", "along", "across")
"""Parameters that are lengths in the units of ρ, whatever the family."""


class Weighting(gpytorch.Module):
    """A family of soft bins u_b(v, v') over the local coordinates of a neighbor.

    A new family names the `coordinates` it reads, gives `bins`, `reach` and `forward`, and keeps each
    argument of its constructor as an attribute of the same name: what is printed, copied and saved
    follows from that. Attributes made by `learnable` are torch parameters.
    """

    coordinates: ClassVar[tuple[str, ...]]
    families: ClassVar[dict[str, type[Weighting]]] = {}

    normalize: bool
    """Divide each bin by the sum of its weights: a weighted average instead of a sum."""
    complete = False
    """Leave out vertices at which a bin is empty."""

    def __init__(self, normalize: bool) -> None:
        super().__init__()
        self.normalize = normalize

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Weighting.families[cls.__name__] = cls

    @property
    def bins(self) -> int:
        """Number of bins."""
        raise NotImplementedError

    @property
    def reach(self) -> float:
        """The distance ρ beyond which no neighbor counts."""
        raise NotImplementedError

    @property
    def rotations(self) -> Int[Tensor, "J bins"] | None:
        """For each turn by one more direction, the bin that comes into each place; None: no directions."""
        return None

    def forward(self, *coordinates: Float[Tensor, "pairs ..."]) -> Float[Tensor, "pairs bins"]:
        """Weight of each pair in each bin, before any normalization."""
        raise NotImplementedError

    def zoomed(self, factor: float) -> Weighting | None:
        """The same bins with all distances multiplied by `factor`; None: there are none to multiply."""
        copied = copy.deepcopy(self)
        names = [name for name in (*CENTERS, *WIDTHS) if hasattr(self, f"raw_{name}")]
        with torch.no_grad():
            for name in names:
                raw = getattr(copied, f"raw_{name}")
                plain = self.constraint_for_parameter_name(f"raw_{name}") is None
                raw.copy_(raw * factor if plain else raw + math.log(factor))
        return copied if names else None

    def factors(
        self, *coordinates: Float[Tensor, "pairs ..."]
    ) -> tuple[Float[Tensor, "pairs K"], Float[Tensor, "pairs J"]] | None:
        """Two factors whose products, bin k·J + j of k and j, are the weights; None: they have none.

        Patches are made of the factors where there are any: these are fewer numbers than the weights.
        """
        return None

    def learnable(self, name: str, value: Any, *, positive: bool = False) -> None:
        """Register the parameter `name`; a positive one is kept as its logarithm."""
        tensor = torch.as_tensor(value, dtype=torch.float64).clone()
        if tensor.numel() == 0 or not torch.isfinite(tensor).all() or (positive and (tensor <= 0).any()):
            kind = "positive" if positive else "finite"
            raise ValueError(f"{type(self).__name__}: {name}={value!r} must be {kind} and not empty")
        raw = f"raw_{name}"
        constraint = Positive(transform=torch.exp, inv_transform=torch.log) if positive else None
        start = tensor if constraint is None else constraint.inverse_transform(tensor)
        self.register_parameter(raw, torch.nn.Parameter(start))
        if constraint is not None:
            self.register_constraint(raw, constraint)

    def __getattr__(self, name: str) -> Any:
        parameters = self.__dict__.get("_parameters", {})
        if f"raw_{name}" in parameters:
            raw = parameters[f"raw_{name}"]
            constraint = self.constraint_for_parameter_name(f"raw_{name}")
            return raw if constraint is None else constraint.transform(raw)
        return super().__getattr__(name)

    def configuration(self) -> dict[str, Any]:
        """The arguments that make a weighting like this one, as plain numbers, texts and lists."""
        names = list(inspect.signature(type(self)).parameters)
        return {name: _plain(getattr(self, name)) for name in names}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{k}={_short(v)}" for k, v in self.configuration().items())
        return f"{type(self).__name__}({arguments})"


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().tolist()
    return list(value) if isinstance(value, tuple) else value


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(_short, value)) + "]"
    return repr(value)
