"""Threads that take pieces of work, one core each.

Blocks of kernel values are small, so that they stay in a core's cache; to share one block out among cores
takes longer than to give each core blocks of its own.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor

from gcgp._runtime.fork import after_fork

Piece = TypeVar("Piece")
Result = TypeVar("Result")

_local = threading.local()
_pools: dict[int, ThreadPoolExecutor] = {}
_lock = threading.Lock()


def parallel_map(work: Callable[[Piece], Result], pieces: Sequence[Piece]) -> Iterator[Result]:
    """The results of all pieces, in their order, by as many threads as torch has; without gradients."""
    threads = min(torch.get_num_threads(), len(pieces))

    def alone(piece: Piece) -> Result:
        with torch.no_grad():
            return work(piece)

    if threads < 2:
        yield from map(alone, pieces)
        return
    yield from _pool(torch.get_num_threads()).map(alone, pieces)


def shares(pieces: Sequence[Piece]) -> list[Sequence[Piece]]:
    """The pieces in as many runs of about equal length as torch has threads.

    To hand out piece by piece takes longer: every time two threads have to agree who goes on.
    """
    count = max(1, min(torch.get_num_threads(), len(pieces)))
    ends = [len(pieces) * k // count for k in range(count + 1)]
    return [pieces[a:b] for a, b in pairwise(ends)]


def scratch(shape: Sequence[int], like: Tensor) -> Tensor:
    """Room of this shape for the calling thread alone, until it asks again.

    To ask the system for it anew, block by block, takes longer than to fill it.
    """
    kind = (like.dtype, like.device)
    rooms = _local.__dict__.setdefault("rooms", {})
    size = math.prod(shape)
    if kind not in rooms or len(rooms[kind]) < size:
        rooms[kind] = torch.empty(size, dtype=like.dtype, device=like.device)
    return rooms[kind][:size].view(*shape)


def _pool(threads: int) -> ThreadPoolExecutor:
    with _lock:
        if threads not in _pools:
            pool = ThreadPoolExecutor(threads, "gcgp", initializer=_begin)
            meeting = threading.Barrier(threads)
            for _ in pool.map(lambda _: meeting.wait(), range(threads)):
                pass  # all have started, and each has a single thread for torch
            torch.set_num_threads(threads)  # what they were told also goes for threads that are not born yet
            _pools[threads] = pool
        return _pools[threads]


def _begin() -> None:
    """One thread for torch. It is asked once, because else the thread would still take on a later number."""
    torch.set_num_threads(1)
    torch.get_num_threads()


def _take_one_thread() -> None:
    """In a forked process: the threads of the pools and of torch did not live on, and torch would wait."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()
    torch.set_num_threads(1)


after_fork(_take_one_thread)
