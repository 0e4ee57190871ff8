"""Compiled parallel loops that also run in forked processes.

Threads do not survive a fork. GNU OpenMP, through which Numba and torch start theirs, then waits for them
without end, and Numba ends the process instead. So a forked process takes one thread.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable
from typing import Any

from numba import njit

_forked = False


def is_forked() -> bool:
    """Whether this process was forked from one that had imported gcgp."""
    return _forked


def after_fork(action: Callable[[], None]) -> None:
    """Have an action run in forked processes, before anything else; nothing where there is no fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)


def parallel_njit(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As `numba.njit(parallel=True, …)`, but forked processes run the loops one after the other.

    For functions that are called from Python: other compiled functions cannot call the result.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        assert isinstance(function, types.FunctionType)
        twin = types.FunctionType(
            function.__code__, function.__globals__, f"{function.__name__}_forked", function.__defaults__
        )
        twin.__qualname__ = twin.__name__  # Numba's cache on disk tells functions apart by this
        twin.__module__ = function.__module__
        parallel = njit(parallel=True, **options)(function)
        sequential = njit(**options)(twin)

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return (sequential if _forked else parallel)(*arguments)

        return call

    return decorate


def _mark() -> None:
    global _forked
    _forked = True


after_fork(_mark)
