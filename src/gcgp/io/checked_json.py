"""Checks of values that were read from a JSON description; every error names the field and the value."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

LARGEST_NUMBER = 1e300
LARGEST_INTEGER = 2**63 - 1
LONGEST_TEXT = 1_000

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
    """An object with all of the required keys and no others than the optional ones."""
    if not isinstance(value, dict):
        raise invalid(where, value, "an object")
    for key in value:
        if key not in required and key not in optional:
            raise ValueError(f"{where}: unknown key {_short.repr(key)}")
    for key in required:
        if key not in value:
            raise ValueError(f"{where}: the key {key!r} is missing")
    return value


def as_list(where: str, value: Any, least: int, most: int) -> list[Any]:
    """A list whose length is in these limits."""
    if not isinstance(value, list) or not least <= len(value) <= most:
        count = f"{least}" if least == most else f"{least} to {most}"
        raise invalid(where, value, f"a list of {count} items")
    return value


def as_integer(where: str, value: Any, least: int, most: int = LARGEST_INTEGER) -> int:
    """An integer in these limits; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise invalid(where, value, f"an integer from {least} to {most}")
    return value


def as_number(where: str, value: Any, least: float = -LARGEST_NUMBER, most: float = LARGEST_NUMBER) -> float:
    """A finite number in these limits."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # Python compares integers of any size with floats exactly, and NaN with nothing.
    if not number or not least <= value <= most:
        raise invalid(where, value, f"a number from {least:g} to {most:g}")
    return float(value)


def as_flag(where: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise invalid(where, value, "true or false")
    return value


def as_text(where: str, value: Any, most: int = LONGEST_TEXT) -> str:
    """A text that is not too long."""
    if not isinstance(value, str) or len(value) > most:
        raise invalid(where, value, f"a text of at most {most} characters")
    return value


def as_choice(where: str, value: Any, known: Collection[str]) -> str:
    """One of the known texts."""
    if not isinstance(value, str) or value not in known:
        raise invalid(where, value, f"one of {', '.join(map(repr, known))}")
    return value


def as_scalar(where: str, value: Any) -> Any:
    """None, a flag, a text, or a number."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return as_text(where, value)
    if isinstance(value, int):
        return as_integer(where, value, -LARGEST_INTEGER)
    return as_number(where, value)


def as_numbers(where: str, value: Any, shape: Sequence[int | None]) -> Float[np.ndarray, "..."]:
    """Nested lists of finite numbers of this shape, in which None is any length of at least 1."""
    wanted = f"finite numbers of shape [{', '.join('n' if n is None else str(n) for n in shape)}]"
    try:
        array = np.asarray(value)
    except (ValueError, RecursionError) as error:
        raise invalid(where, value, wanted) from error
    fits = len(array.shape) == len(shape) and all(
        n >= 1 if wished is None else n == wished for n, wished in zip(array.shape, shape, strict=True)
    )
    if not fits or array.dtype.kind not in "iuf" or not (np.abs(array) <= LARGEST_NUMBER).all():
        raise invalid(where, value, wanted)
    return array.astype(np.float64)


def as_plain(where: str, value: Any, depth: int = 4) -> Any:
    """A scalar, or lists of scalars to this depth."""
    if not isinstance(value, list):
        return as_scalar(where, value)
    if depth == 0:
        raise invalid(where, value, "fewer nested lists")
    return [as_plain(f"{where}[{i}]", item, depth - 1) for i, item in enumerate(value)]
