"""Weightings as JSON descriptions and back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from gcgp.io import checks
from gcgp.io.classes import argument_names, describe_object, find_class
from gcgp.io.tensors import load_state
from gcgp.weighting import Weighting

MAX_WEIGHTING_SIZE = 4096


def _strings(where: str, value: Any) -> list[str]:
    return [checks.as_string(f"{where}[{i}]", item) for i, item in enumerate(checks.as_list(where, value, 1))]


CHECKS_BY_TYPE: dict[type, checks.Check] = {
    int: partial(checks.as_integer, least=1, most=MAX_WEIGHTING_SIZE),
    bool: checks.as_flag,
    str: checks.as_string,
    list: _strings,
}


def describe_weighting(weighting: Weighting) -> dict[str, Any]:
    """The family of a weighting, its constructor arguments, and the shorthand in which they were given."""
    arguments, shorthand = (
        {name: value.item() if isinstance(value, np.generic) else value for name, value in items.items()}
        for items in (weighting.get_params(), weighting._shorthand)
    )
    return describe_object(weighting, arguments) | {"shorthand": shorthand}


def rebuild_weighting(where: str, description: Any, state: Mapping[str, Tensor] | None = None) -> Weighting:
    """The weighting of a description, with its stored state if there is one.

    Arguments are checked first, against the state or the types that the family declares, so that nothing
    larger than the description is built.
    """
    checks.as_object(where, description, ("class", "parameters", "shorthand"), ("defined_in",))
    family = find_class(where, description, Weighting)
    types, names = family.argument_types, argument_names(family)
    numerical = [name for name in names if isinstance(types.get(name), int)]
    parameters = checks.as_object(f"{where}.parameters", description["parameters"], numerical, names)
    for name, value in parameters.items():
        field, kind = f"{where}.parameters.{name}", types.get(name, object)
        stored = None if state is None else state.get(f"raw_{name}")
        if stored is not None:
            checks.as_numbers(field, value, stored.shape)
        elif isinstance(kind, int):
            checks.as_numbers(field, value, (None,) * kind)
        else:
            CHECKS_BY_TYPE.get(kind, checks.as_nested)(field, value)
    weighting = family(**parameters)
    weighting._shorthand = checks.as_object(f"{where}.shorthand", description["shorthand"], (), names)
    for name, value in weighting._shorthand.items():
        if value is not None:
            check = CHECKS_BY_TYPE[int] if isinstance(value, int) else checks.as_number
            check(f"{where}.shorthand.{name}", value)
    if state is None:
        return weighting
    load_state(where, weighting, state)
    for name, value in weighting.get_params().items():
        if f"raw_{name}" in state and not np.allclose(value, parameters[name], rtol=1e-3, atol=1e-6):
            raise ValueError(f"{where}.parameters.{name} does not agree with the stored tensor")
    return weighting.requires_grad_(False)
