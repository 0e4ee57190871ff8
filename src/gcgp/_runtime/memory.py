"""Memory budgets: a limit as users write it, and slices of work that stay within it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

BYTES_PER_UNIT = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def as_bytes(limit: Any) -> int:
    """A number of bytes from an integer or a string such as `"500 MB"`.

    >>> as_bytes("1.5 GiB")
    1610612736
    """
    if isinstance(limit, (int, np.integer)) and not isinstance(limit, bool) and limit > 0:
        return int(limit)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]i?B)?\s*", str(limit), re.IGNORECASE)
    if match is None or not isinstance(limit, str) or float(match[1]) <= 0:
        raise ValueError(f"memory_limit={limit!r}: expected bytes, or a string such as '500 MB'")
    return int(float(match[1]) * BYTES_PER_UNIT[(match[2] or "").upper()])


def runs(cost: Float[np.ndarray, "items"], budget: float) -> Iterator[slice]:
    """Consecutive slices of items whose cost adds up to at most `budget`; at least one item each."""
    total = np.cumsum(cost)
    start = 0
    while start < len(cost):
        spent = total[start - 1] if start else 0.0
        stop = max(start + 1, int(np.searchsorted(total, spent + budget, side="right")))
        yield slice(start, stop)
        start = stop
