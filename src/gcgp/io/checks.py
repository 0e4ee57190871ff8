"""Checks of values that were read from JSON; every error names the field and the value."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

Check = Callable[[str, Any], Any]
"""From the name of a field and its JSON value to the checked value."""
MAX_NUMBER = 1e300
MAX_INTEGER = 2**64 - 1
MAX_CHARACTERS = 1 << 16
MAX_ITEMS = 10**6
"""Items of one list."""
MAX_NESTING = 8
"""Lists, tuples or objects inside one another."""

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60
_short.maxlevel = 3


def invalid(where: str, value: object, expected: str) -> ValueError:
    """The error for a value that does not fit; long values are shortened.

    >>> invalid("sizes[2]", -1, "an integer from 1 to 9")
    ValueError('sizes[2] = -1: expected an integer from 1 to 9')
    """
    return ValueError(f"{where} = {_short.repr(value)}: expected {expected}")


def as_object(
    where: str, value: Any, required: Collection[str], optional: Collection[str] = ()
) -> dict[str, Any]:
    """An object with all required keys and no others than the optional ones."""
    if not isinstance(value, dict):
        raise invalid(where, value, "an object")
    for key in value:
        if key not in required and key not in optional:
            raise ValueError(f"{where}: unknown key {_short.repr(key)}")
    for key in required:
        if key not in value:
            raise ValueError(f"{where}: the key {key!r} is missing")
    return value


def as_list(where: str, value: Any, least: int = 0, most: int = MAX_ITEMS) -> list[Any]:
    """A list whose length is within these limits."""
    if not isinstance(value, list) or not least <= len(value) <= most:
        count = f"{least}" if least == most else f"{least} to {most}"
        raise invalid(where, value, f"a list of {count} items")
    return value


def as_integer(where: str, value: Any, least: int, most: int = MAX_INTEGER) -> int:
    """An integer within these limits; True and False are not integers here."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise invalid(where, value, f"an integer from {least} to {most}")
    return value


def as_number(where: str, value: Any, least: float = -MAX_NUMBER, most: float = MAX_NUMBER) -> float:
    """A finite number within these limits."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # Python compares integers of any size with floats exactly, and comparisons with NaN are false.
    if not number or not least <= value <= most:
        raise invalid(where, value, f"a number from {least:g} to {most:g}")
    return float(value)


def as_flag(where: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise invalid(where, value, "true or false")
    return value


def as_string(where: str, value: Any, most: int = MAX_CHARACTERS) -> str:
    """A string that is not too long."""
    if not isinstance(value, str) or len(value) > most:
        raise invalid(where, value, f"a string of at most {most} characters")
    return value


def as_choice(where: str, value: Any, known: Collection[str]) -> str:
    """One of the known strings."""
    if not isinstance(value, str) or value not in known:
        raise invalid(where, value, f"one of {', '.join(map(repr, known))}")
    return value


def as_scalar(where: str, value: Any) -> Any:
    """None, a flag, a string, or a number."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return as_string(where, value)
    if isinstance(value, int):
        return as_integer(where, value, -MAX_INTEGER)
    return as_number(where, value)


def as_numbers(where: str, value: Any, shape: Sequence[int | None]) -> Float[np.ndarray, "..."]:
    """Nested lists of finite numbers of this shape, in which None is any length of at least 1."""
    expected = f"finite numbers of shape [{', '.join('n' if n is None else str(n) for n in shape)}]"
    try:
        array = np.asarray(value)
    except (ValueError, RecursionError) as error:
        raise invalid(where, value, expected) from error
    numeric = fits_shape(array.shape, shape) and array.dtype.kind in "iuf"
    if not numeric or not (np.abs(array) <= MAX_NUMBER).all():
        raise invalid(where, value, expected)
    return array.astype(np.float64)


def fits_shape(shape: Sequence[int], pattern: Sequence[int | None]) -> bool:
    """Whether a shape is the expected one, in which None is any length of at least 1."""
    return len(shape) == len(pattern) and all(
        n >= 1 if expected is None else n == expected for n, expected in zip(shape, pattern, strict=True)
    )


def as_nested(where: str, value: Any, depth: int = 4) -> Any:
    """A scalar, or lists of scalars to this depth."""
    if not isinstance(value, list):
        return as_scalar(where, value)
    if depth == 0:
        raise invalid(where, value, "fewer nested lists")
    return [as_nested(f"{where}[{i}]", item, depth - 1) for i, item in enumerate(value)]
