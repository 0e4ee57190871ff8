"""Compiled parallel loops that also run in forked processes.

Threads do not survive a fork: GNU OpenMP, which Numba and torch use, would wait for them forever, so Numba
terminates the process instead. Forked processes therefore use one thread.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable
from typing import Any

from numba import njit

_forked = False


def after_fork(action: Callable[[], None]) -> None:
    """Run an action at the start of forked processes, on systems that can fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)


def parallel_njit(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Like `numba.njit(parallel=True, …)`, but forked processes run the loops in one thread.

    Other compiled functions cannot call the result.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        assert isinstance(function, types.FunctionType)
        copied = types.FunctionType(
            function.__code__, function.__globals__, f"{function.__name__}_forked", function.__defaults__
        )
        copied.__qualname__ = copied.__name__  # by which Numba's cache on disk distinguishes functions
        copied.__module__ = function.__module__
        parallel = njit(parallel=True, **options)(function)
        sequential = njit(**options)(copied)

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return (sequential if _forked else parallel)(*arguments)

        return call

    return decorate


def _mark() -> None:
    global _forked
    _forked = True


after_fork(_mark)
