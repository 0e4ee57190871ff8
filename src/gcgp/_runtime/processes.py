"""Several processes that fit one model, each with a part of the signals, and their communication.

Closed forms, learning and variational inference need only sums over signals, which processes exchange.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as distributed
from jaxtyping import Shaped
from torch import Tensor

EXIT_TIMEOUT = timedelta(seconds=5)
EXIT_INTERVAL, MAX_EXIT_INTERVALS = 0.2, 10
"""Seconds between the ends of two processes, and the largest number of intervals."""


class ProcessLostError(RuntimeError):
    """Another process of the same fit has ended."""


@dataclass(frozen=True)
class ProcessGroup:
    """This process and the others. All of them must make the same calls in the same order."""

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> ProcessGroup:
        """The processes of torch.distributed if it is initialized, otherwise this process alone."""
        if not distributed.is_available() or not distributed.is_initialized():
            return cls()
        return cls(distributed.get_rank(), distributed.get_world_size())

    @classmethod
    def initialize(cls) -> ProcessGroup:
        """Like `current`, but under `torchrun` torch.distributed is initialized first."""
        if distributed.is_available() and not distributed.is_initialized() and "RANK" in os.environ:
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            distributed.init_process_group(backend)
            atexit.register(_destroy_process_group)
        return cls.current()

    def share(self, count: int) -> slice:
        """The part of `count` items that belongs to this process."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def sum(self, *tensors: Tensor) -> None:
        """Replace each tensor by its sum over all processes."""
        if self.size > 1:
            with self._communication():
                for tensor in tensors:
                    distributed.all_reduce(tensor)

    def concatenate(self, tensor: Shaped[Tensor, "..."], dim: int = 0) -> Shaped[Tensor, "..."]:
        """The tensors of all processes, concatenated along a dimension."""
        if self.size == 1:
            return tensor
        first = tensor.movedim(dim, 0).contiguous()
        with self._communication():
            counts = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
            distributed.all_gather(counts, torch.tensor([len(first)]))
            padded = first.new_zeros(int(max(counts)), *first.shape[1:])
            padded[: len(first)] = first
            parts = [torch.empty_like(padded) for _ in range(self.size)]
            distributed.all_gather(parts, padded)
        trimmed = [part[: int(count)] for part, count in zip(parts, counts, strict=True)]
        return torch.cat(trimmed).movedim(0, dim)

    def gather(self, item: Any) -> list[Any]:
        """The items of all processes."""
        if self.size == 1:
            return [item]
        items: list[Any] = [None] * self.size
        with self._communication():
            distributed.all_gather_object(items, item)
        return items

    def broadcast_flag(self, flag: bool) -> bool:
        """The flag of the first process."""
        total = torch.tensor([flag and self.rank == 0], dtype=torch.float64)
        self.sum(total)
        return bool(total)

    @contextmanager
    def _communication(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise ProcessLostError(
                f"rank {self.rank} of {self.size} has lost contact with the others: one of them has ended; "
                "its own message says why. Start all processes again; a fit with a checkpoint resumes. "
                f"({str(error).splitlines()[0]})"
            ) from error


def _destroy_process_group() -> None:
    """Prevent that waiting threads of gloo abort the process at its end.

    They may also abort it if another process ends at the same moment, so that all wait for each other first,
    and then end one after the other.
    """
    if distributed.is_initialized():
        if distributed.get_backend() == "gloo":
            with suppress(RuntimeError):  # another process has failed
                distributed.monitored_barrier(timeout=EXIT_TIMEOUT)
            time.sleep(EXIT_INTERVAL * min(distributed.get_rank(), MAX_EXIT_INTERVALS))
        distributed.destroy_process_group()


SINGLE_PROCESS = ProcessGroup()
