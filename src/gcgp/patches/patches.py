"""Patches of signals, stored flat with offsets; repeated patches of a signal can be merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gcgp._numerics.segments import join_offsets, take_segments


@dataclass(frozen=True)
class Patches:
    """The patches of N signals; those of signal `n` are rows `offsets[n]:offsets[n + 1]`.

    The function value of a signal is Σ multiplicity · g(patch). The multiplicity expresses sums, means,
    vertex weights and repeated patches.
    """

    values: Float[Tensor, "total_patches dim"]
    multiplicity: Float[Tensor, "total_patches"]
    offsets: Int[Tensor, "signals_plus_1"]
    vertices: Int[Tensor, "total_patches"]
    """The vertex of each patch, as a flat index among all vertices of the signals."""
    population: Int[Tensor, "signals"] | None = None
    """Number of patches per signal before `thinned` drew from them; None if all are present."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, signals: slice) -> Patches:
        start, stop, step = signals.indices(len(self))
        if step != 1:
            raise IndexError(f"patches are sliced by runs of signals; the step was {step}")
        offsets = self.offsets[start : max(start, stop) + 1]
        population = None if self.population is None else self.population[start : max(start, stop)]
        return self._rows(slice(int(offsets[0]), int(offsets[-1])), offsets - offsets[0], population)

    def _rows(
        self, rows: slice | Int[Tensor, "n"], offsets: Int[Tensor, "_"], population: Int[Tensor, "_"] | None
    ) -> Patches:
        return Patches(self.values[rows], self.multiplicity[rows], offsets, self.vertices[rows], population)

    @classmethod
    def concatenate(cls, parts: Sequence[Patches]) -> Patches:
        """The patches of all signals of all parts, in order."""
        population = None
        if any(part.population is not None for part in parts):
            population = torch.cat(
                [part.offsets.diff() if part.population is None else part.population for part in parts]
            )
        return cls(
            torch.cat([part.values for part in parts]),
            torch.cat([part.multiplicity for part in parts]),
            torch.from_numpy(join_offsets([part.offsets.numpy() for part in parts])),
            torch.cat([part.vertices for part in parts]),
            population,
        )

    @property
    def signal_of(self) -> Int[Tensor, "total_patches"]:
        """The signal of each patch."""
        return torch.repeat_interleave(torch.arange(len(self)), self.offsets.diff())

    def select_rows(self, rows: Int[Tensor, "n"]) -> Patches:
        """The patches at these rows, which are ascending."""
        return self._rows(rows, torch.searchsorted(rows, self.offsets), self.population)

    def select_signals(self, signals: Int[Tensor, "n"]) -> Patches:
        """The patches of the signals with these indices, in that order."""
        rows, offsets = take_segments(self.offsets.numpy(), signals.numpy())
        population = None if self.population is None else self.population[signals]
        return self._rows(torch.from_numpy(rows), torch.from_numpy(offsets), population)

    def double(self) -> Patches:
        """The same patches in float64."""
        return replace(self, values=self.values.double(), multiplicity=self.multiplicity.double())

    def to(self, device: torch.device) -> Patches:
        """The same patches with values and multiplicities on a device; offsets stay on the CPU."""
        return replace(self, values=self.values.to(device), multiplicity=self.multiplicity.to(device))

    def scaled(self, factor: Float[Tensor, "total_patches"]) -> Patches:
        """The same patches with multiplicities times `factor`."""
        return replace(self, multiplicity=self.multiplicity * factor)

    def distinct(self) -> Patches:
        """Identical patches of a signal merged into one, with the sum of their multiplicities."""
        from gcgp.patches.loops import first_occurrences

        rows = np.ascontiguousarray(self.values.detach().cpu().numpy())
        words = rows.view(np.uint32 if rows.dtype == np.float32 else np.uint64)
        first = torch.from_numpy(first_occurrences(words, self.offsets.numpy()))
        unique = torch.nonzero(first == torch.arange(len(first)))[:, 0]
        if len(unique) == len(first):
            return self
        index = torch.empty_like(first)
        index[unique] = torch.arange(len(unique))
        total = torch.zeros(len(unique), dtype=self.multiplicity.dtype)
        return replace(
            self.select_rows(unique), multiplicity=total.index_add(0, index[first], self.multiplicity)
        )

    def shared(self, counts: Int[Tensor, "signals"]) -> Patches:
        """The only patch of each signal, in equal shares at all of its vertices; `counts` vertices each."""
        rows = torch.repeat_interleave(torch.arange(len(self)), counts)
        values, multiplicity = self.values[rows], self.multiplicity[rows] / counts[rows]
        offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
        return Patches(values, multiplicity, offsets, torch.arange(len(rows)))

    def thinned(self, limit: int, rng: np.random.Generator) -> Patches:
        """A random sample of at most `limit` patches per signal; multiplicities are scaled to represent all.

        Sums over patches are unbiased. Sums over pairs of patches are not, because each patch is paired with
        itself too often; `population` allows the correction.
        """
        counts = self.offsets.diff()
        if bool((counts <= limit).all()):
            return self
        rows, factors = [], []
        for start, count in zip(self.offsets[:-1].tolist(), counts.tolist(), strict=True):
            drawn = np.sort(rng.permutation(count)[:limit]) if count > limit else np.arange(count)
            rows.append(start + drawn)
            factors.append(np.full(len(drawn), count / max(len(drawn), 1)))
        factor = torch.from_numpy(np.concatenate(factors)).to(self.multiplicity.dtype)
        sample = self.select_rows(torch.from_numpy(np.concatenate(rows))).scaled(factor)
        return replace(sample, population=counts if self.population is None else self.population)
