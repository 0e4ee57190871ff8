"""Classes that a model file names: those of gcgp, or the user's, found among imported subclasses."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from gcgp.io.checks import as_string

Base = TypeVar("Base")


def describe_object(instance: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The class of an object and its constructor arguments; a class of the user also with its module."""
    kind = type(instance)
    description = {"class": kind.__name__, "parameters": dict(parameters)}
    return description if _in_gcgp(kind) else description | {"defined_in": _address(kind)}


def find_class(where: str, description: Mapping[str, Any], base: type[Base]) -> type[Base]:
    """The imported subclass of `base` that `describe_object` named.

    A class of the user never takes the place of one of gcgp. If several have the same name, the module
    decides; a class that has moved to another module is used with a warning.
    """
    name, address = as_string(f"{where}.class", description["class"]), description.get("defined_in")
    named = [kind for kind in _subclasses(base) if kind.__name__ == name]
    known = [kind for kind in named if _in_gcgp(kind) == (address is None)]
    if not known:
        raise ValueError(
            f"{where}: the model uses the {base.__name__} {name!r}, which is not part of gcgp; "
            "import the module that defines it before loading"
        )
    exact = [kind for kind in known if address in (None, _address(kind))]
    if not exact:
        warnings.warn(
            f"{where}: the {base.__name__} {name!r} was defined in {as_string(where, address)} when the "
            f"model was saved; {_address(known[-1])} is used instead",
            stacklevel=2,
        )
    return (exact or known)[-1]


def argument_names(kind: type) -> tuple[str, ...]:
    """Names of the constructor arguments of a class."""
    return tuple(inspect.signature(kind).parameters)


def _subclasses(base: type[Base]) -> Iterator[type[Base]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _subclasses(kind)


def _in_gcgp(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "gcgp"


def _address(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
