"""Groups of related constructor arguments, as small objects that follow scikit-learn's parameter contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sklearn.base import BaseEstimator

from gcgp._runtime.errors import unknown_option


class Options(BaseEstimator):
    """Base class of option objects: `get_params`, `set_params`, `clone` and a short `repr`.

    A subclass is a dataclass with `eq=False, repr=False`. `GridSearchCV` addresses its fields as
    `argument__field`.
    """

    def validate(self) -> None:
        """Raise a ValueError that names the first field with an invalid value."""


def resolve_option(name: str, value: Any, base: type[Options], known: Mapping[str, Any]) -> Any:
    """The option object that `value` stands for: the object itself, or the name of a known class.

    `known` maps names to classes. The result is validated; the error for anything else lists the names.
    """
    option: Any = known[value]() if isinstance(value, str) and value in known else value
    if not isinstance(option, base):
        raise unknown_option(name, value, (*known, f"any {base.__name__}"))
    option.validate()
    return option
