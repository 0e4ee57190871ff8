"""Processes that fit one model together, each with a part of the signals: what they tell each other.

Sums over signals are all that the closed forms, the gradients of learning and the steps of variational
inference need of them, so these are what is told. A process by itself is the only rank there is.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as distributed
from jaxtyping import Shaped
from torch import Tensor


class RankLost(RuntimeError):
    """Another process of the same fit has ended."""


@dataclass(frozen=True)
class ProcessGroup:
    """This process and those beside it. All of them have to make the same calls in the same order."""

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> ProcessGroup:
        """Those of torch.distributed, if its processes have met."""
        if not distributed.is_available() or not distributed.is_initialized():
            return cls()
        return cls(distributed.get_rank(), distributed.get_world_size())

    @classmethod
    def initialize(cls) -> ProcessGroup:
        """Like `present`, but under `torchrun` the processes meet first: gloo for CPUs, nccl for GPUs."""
        if distributed.is_available() and not distributed.is_initialized() and "RANK" in os.environ:
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            distributed.init_process_group(backend)
            atexit.register(_part)
        return cls.current()

    def share(self, count: int) -> slice:
        """The part of so many things that is this process's own."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def sum(self, *tensors: Tensor) -> None:
        """Each tensor becomes the sum of those of all processes."""
        if self.size > 1:
            with self._together():
                for tensor in tensors:
                    distributed.all_reduce(tensor)

    def concatenate(self, tensor: Shaped[Tensor, "..."], dim: int = 0) -> Shaped[Tensor, "..."]:
        """The tensors of all processes, one after the other along a dimension."""
        if self.size == 1:
            return tensor
        first = tensor.movedim(dim, 0).contiguous()
        with self._together():
            counts = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
            distributed.all_gather(counts, torch.tensor([len(first)]))
            padded = first.new_zeros(int(max(counts)), *first.shape[1:])
            padded[: len(first)] = first
            parts = [torch.empty_like(padded) for _ in range(self.size)]
            distributed.all_gather(parts, padded)
        kept = [part[: int(count)] for part, count in zip(parts, counts, strict=True)]
        return torch.cat(kept).movedim(0, dim)

    def gather(self, item: Any) -> list[Any]:
        """What each process has."""
        if self.size == 1:
            return [item]
        items: list[Any] = [None] * self.size
        with self._together():
            distributed.all_gather_object(items, item)
        return items

    def broadcast_flag(self, answer: bool) -> bool:
        """The answer of the first process."""
        said = torch.tensor([answer and self.rank == 0], dtype=torch.float64)
        self.total(said)
        return bool(said)

    @contextmanager
    def _together(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise RankLost(
                f"rank {self.rank} of {self.size} has lost contact with the others: one of them has ended, "
                "and its own message says why. Start all of them again; a fit with a checkpoint goes on "
                f"where it was. ({str(error).splitlines()[0]})"
            ) from error


def _part() -> None:
    """Without this a process may be aborted at its end, by threads of gloo that still wait."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


SINGLE_PROCESS = ProcessGroup()
