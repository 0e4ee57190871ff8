"""Decision whether a case is a failure."""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

UNCLEAR = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"cannot reshape array",
        r"mat1 and mat2",
        r"out of (bounds|range)( for|$)",
        r"setting an array element",
        r"could not be broadcast",
        r"must match the size of tensor",
        r"inhomogeneous",
        r"^(array|input|self) must",
        r"need at least one array",
        r"zero-size array",
        r"truth value of an",
        r"object has no attribute",
        r"object is not (iterable|callable|subscriptable)",
        r"unsupported operand",
        r"not supported between instances",
        r"ufunc",
        r"unhashable type",
        r"invalid literal for int",
        r"could not convert string to float",
        r"can't convert (np|cuda)",
        r"can't assign",
        r"only (length-1|0-dimensional|integer|one element) ",
        r"^expected (all tensors|a sequence|scalar type|np)",
        r"positional argument",
        r"unexpected keyword",
        r"not understood",
        r"no matching definition",
        r"maximum (allowed size|recursion)",
        r"cannot cast|could not cast|same.kind",
        r"all the input array",
        r"dimension(s)? (must|mismatch)",
        r"singular|not positive.definite",
        r"array must not contain infs",
        r"input contains nan",
        r"reduction operation",
        r"operands could not",
        r"float\(\) argument|int\(\) argument|a number is required|^must be real number",
        r"too many values to unpack|not enough values to unpack",
        r"buffer|stride",
        r"overflow encountered|python int too large",
    )
]
"""Messages of libraries instead of gcgp, which do not name the wrong item of the input."""
BAD_WARNINGS = (RuntimeWarning, DeprecationWarning, FutureWarning, PendingDeprecationWarning)
MAX_MESSAGE = 2_000


class Violation(AssertionError):
    """A wrong result."""


class Outcome(NamedTuple):
    """`kind` is "accepted", "rejected" or the kind of failure, which `detail` explains."""

    kind: str
    detail: str = ""

    @property
    def failed(self) -> bool:
        """Whether this is a failure."""
        return self.kind not in ("accepted", "rejected")


def judge(run: Callable[[], Any]) -> Outcome:
    """Run a case: it may return, or raise a clear ValueError or TypeError."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            run()
            outcome = Outcome("accepted")
        except (ValueError, TypeError) as error:
            outcome = _rejection(error)
        except Violation as error:
            outcome = Outcome("wrong result", str(error))
        except Exception as error:
            outcome = Outcome("exception", _trace(error))
    for warning in caught:
        from_gcgp = warning.category.__module__.startswith("gcgp")
        if not outcome.failed and not from_gcgp and issubclass(warning.category, BAD_WARNINGS):
            location = f"{warning.filename.rpartition('/')[2]}:{warning.lineno}"
            outcome = Outcome("warning", f"{warning.category.__name__} at {location}: {warning.message}")
    return outcome


def _rejection(error: Exception) -> Outcome:
    message = str(error)
    exact = type(error) in (ValueError, TypeError) or type(error).__module__.startswith(("gcgp", "sklearn"))
    text = re.sub(r" \(.*\)", "", message, flags=re.DOTALL)  # a library's reason may follow in parentheses
    foreign = not type(error).__module__.startswith("gcgp")
    unclear = foreign and any(pattern.search(text) for pattern in UNCLEAR)
    if not exact or not message.strip() or unclear or len(message) > MAX_MESSAGE:
        return Outcome("unclear error", _trace(error))
    return Outcome("rejected")


def _trace(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    where = " > ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames)
    return f"{type(error).__name__}: {str(error)[:400]} [{where}]"


def check(condition: bool, message: str) -> None:
    """Raise a `Violation` unless the condition holds."""
    if not condition:
        raise Violation(message)


def check_finite(name: str, values: Any) -> None:
    """Raise a `Violation` unless all numbers are finite."""
    array = np.asarray(values)
    check(bool(np.isfinite(array).all()), f"{name} is not finite: {np.array2string(array, threshold=12)}")


def check_close(name: str, values: Any, others: Any, tolerance: float = 1e-5) -> None:
    """Raise a `Violation` unless the numbers agree."""
    first, second = np.asarray(values), np.asarray(others)
    check(first.shape == second.shape, f"{name}: shapes {first.shape} and {second.shape}")
    difference = np.abs(first - second).max() if first.size else 0.0
    check(bool(difference <= tolerance), f"{name}: {difference:.3g} apart (limit {tolerance:.3g})")
