"""Threads that process separate pieces of work, each on one core.

Blocks of kernel values fit into the cache of a core, so it is faster to compute different blocks on different
cores than to divide each block among all cores.
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
    """The results of all pieces, in order, computed by as many threads as torch has; without gradients."""

    def without_gradients(piece: Piece) -> Result:
        with torch.no_grad():
            return work(piece)

    threads = torch.get_num_threads()
    parallel = min(threads, len(pieces)) > 1
    yield from (_pool(threads).map if parallel else map)(without_gradients, pieces)


def shares(pieces: Sequence[Piece]) -> list[Sequence[Piece]]:
    """The pieces in runs of about equal length, one per thread of torch, which saves synchronization."""
    count = max(1, min(torch.get_num_threads(), len(pieces)))
    ends = [len(pieces) * k // count for k in range(count + 1)]
    return [pieces[a:b] for a, b in pairwise(ends)]


def scratch(shape: Sequence[int], like: Tensor) -> Tensor:
    """A tensor of this shape that the calling thread may use until its next call.

    The memory is reused, because allocating a block takes longer than filling it.
    """
    kind = (like.dtype, like.device)
    buffers = _local.__dict__.setdefault("buffers", {})
    size = math.prod(shape)
    if kind not in buffers or len(buffers[kind]) < size:
        buffers[kind] = torch.empty(size, dtype=like.dtype, device=like.device)
    return buffers[kind][:size].view(*shape)


def _pool(threads: int) -> ThreadPoolExecutor:
    with _lock:
        if threads not in _pools:
            pool = ThreadPoolExecutor(threads, "gcgp", initializer=_use_one_torch_thread)
            barrier = threading.Barrier(threads)
            for _ in pool.map(lambda _: barrier.wait(), range(threads)):
                pass  # all threads of the pool have started
            torch.set_num_threads(threads)  # for later threads, to which the setting of the pool also applies
            _pools[threads] = pool
        return _pools[threads]


def _use_one_torch_thread() -> None:
    torch.set_num_threads(1)
    torch.get_num_threads()  # fixes the number, which later settings would otherwise change


def _reset_after_fork() -> None:
    """The threads of the pools and of torch do not survive a fork, and torch would wait for them."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()
    torch.set_num_threads(1)


after_fork(_reset_after_fork)
