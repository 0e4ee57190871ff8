"""Errors for invalid options: each names the option, its value and what was expected."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np


def unknown_option(name: str, value: object, known: Sequence[str]) -> ValueError:
    """The error for a value that is not among the known ones."""
    return ValueError(f"{name}={value!r} is not known; expected one of {', '.join(map(repr, known))}")


def check_choice(name: str, value: Any, known: Sequence[str]) -> None:
    """Raise unless `value` is one of the known strings."""
    if not isinstance(value, str) or value not in known:
        raise unknown_option(name, value, known)


def check_auto_or_bool(name: str, value: Any) -> None:
    """Raise unless `value` is `"auto"`, True or False."""
    if not isinstance(value, (str, int, np.bool_)) or value not in (True, False, "auto"):
        raise unknown_option(name, value, ("auto", "True", "False"))


def check_integer(name: str, value: Any, least: int = 1) -> None:
    """Raise unless `value` is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name}={value!r} must be an integer of at least {least}")


def check_positive(name: str, value: Any, *, auto: bool = True) -> None:
    """Raise unless `value` is a positive number or, if `auto`, the string `"auto"`."""
    if auto and isinstance(value, str) and value == "auto":
        return
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not 0 < value <= sys.float_info.max:  # integers may be larger than any float
        expected = "'auto' or a positive number" if auto else "a positive number"
        raise ValueError(f"{name}={value!r}: expected {expected}")


def check_representable(name: str, value: Any, dtype: str) -> None:
    """Raise unless a number is within the range of the dtype (for `"auto"`, of float32)."""
    if isinstance(value, (str, bool, np.bool_)):
        return
    limits = np.finfo("float32" if dtype == "auto" else dtype)
    if not float(limits.tiny) <= float(value) <= float(limits.max):
        raise ValueError(
            f"{name}={value!r}: expected a number from {limits.tiny:.3g} to {limits.max:.3g}, "
            f"the range of dtype={dtype!r}"
        )
