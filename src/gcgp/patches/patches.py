"""Patches: flat, ragged, and counted once where a signal repeats them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Patches:
    """The patches of N signals; those of signal `n` are rows `offsets[n]:offsets[n + 1]`.

    A signal's function value is Σ multiplicity · g(patch). Sums, means, vertex weights and repeated
    patches are all expressed by the multiplicity.
    """

    values: Float[Tensor, "total_patches dim"]
    multiplicity: Float[Tensor, "total_patches"]
    offsets: Int[Tensor, "signals_plus_1"]
    vertices: Int[Tensor, "total_patches"]
    """The flat number, among all vertices of the signals that patches were made of, of each patch's own."""
    population: Int[Tensor, "signals"] | None = None
    """Number of patches that those of each signal were drawn from by `thinned`; None: all are here."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, signals: slice) -> Patches:
        start, stop, step = signals.indices(len(self))
        if step != 1:
            raise IndexError(f"patches are cut in runs of signals; the step was {step}")
        offsets = self.offsets[start : max(start, stop) + 1]
        rows = slice(int(offsets[0]), int(offsets[-1]))
        population = None if self.population is None else self.population[start : max(start, stop)]
        return Patches(
            self.values[rows],
            self.multiplicity[rows],
            offsets - offsets[0],
            self.vertices[rows],
            population,
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Patches]) -> Patches:
        """The patches of all signals of all parts, in order."""
        counts = torch.cat([part.offsets.diff() for part in parts])
        population = None
        if any(part.population is not None for part in parts):
            population = torch.cat(
                [part.offsets.diff() if part.population is None else part.population for part in parts]
            )
        return cls(
            torch.cat([part.values for part in parts]),
            torch.cat([part.multiplicity for part in parts]),
            torch.cat([torch.zeros(1, dtype=counts.dtype), counts.cumsum(0)]),
            torch.cat([part.vertices for part in parts]),
            population,
        )

    @property
    def signal_of(self) -> Int[Tensor, "total_patches"]:
        """The signal each patch belongs to."""
        return torch.repeat_interleave(torch.arange(len(self)), self.offsets.diff())

    def some(self, rows: Int[Tensor, "kept"]) -> Patches:
        """These rows, in rising order."""
        offsets = torch.searchsorted(rows, self.offsets)
        return Patches(
            self.values[rows], self.multiplicity[rows], offsets, self.vertices[rows], self.population
        )

    def of(self, signals: Int[Tensor, "n"]) -> Patches:
        """The patches of the signals of these numbers, in that order."""
        counts = self.offsets.diff()[signals]
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        shift = torch.repeat_interleave(self.offsets[signals] - offsets[:-1], counts)
        rows = torch.arange(int(offsets[-1])) + shift
        population = None if self.population is None else self.population[signals]
        return Patches(self.values[rows], self.multiplicity[rows], offsets, self.vertices[rows], population)

    def double(self) -> Patches:
        """The same patches in float64."""
        return replace(self, values=self.values.double(), multiplicity=self.multiplicity.double())

    def distinct(self) -> Patches:
        """Identical patches of a signal become one, with the sum of their multiplicities."""
        from gcgp.patches.loops import first_occurrences

        rows = np.ascontiguousarray(self.values.detach().cpu().numpy())
        words = rows.view(np.uint32 if rows.dtype == np.float32 else np.uint64)
        first = torch.from_numpy(first_occurrences(words, self.offsets.numpy()))
        kept = torch.nonzero(first == torch.arange(len(first)))[:, 0]
        if len(kept) == len(first):
            return self
        place = torch.empty_like(first)
        place[kept] = torch.arange(len(kept))
        summed = torch.zeros(len(kept), dtype=self.multiplicity.dtype)
        summed = summed.index_add(0, place[first], self.multiplicity)
        return replace(self.some(kept), multiplicity=summed)

    def thinned(self, most: int, rng: np.random.Generator) -> Patches:
        """A random sample of at most `most` patches per signal; multiplicities represent all patches.

        Sums over patches are right on average. Sums over pairs of patches are not, because a patch is paired
        with itself too often; `population` is what they are corrected by.
        """
        counts = self.offsets.diff()
        if bool((counts <= most).all()):
            return self
        rows, factors = [], []
        for start, count in zip(self.offsets[:-1].tolist(), counts.tolist(), strict=True):
            drawn = np.sort(rng.permutation(count)[:most]) if count > most else np.arange(count)
            rows.append(start + drawn)
            factors.append(np.full(len(drawn), count / max(len(drawn), 1)))
        factor = torch.from_numpy(np.concatenate(factors)).to(self.multiplicity.dtype)
        sample = self.some(torch.from_numpy(np.concatenate(rows))).scaled(factor)
        return replace(sample, population=counts if self.population is None else self.population)

    def to(self, device: torch.device) -> Patches:
        """Values and multiplicities on a device; which rows are whose stays where it is."""
        return replace(self, values=self.values.to(device), multiplicity=self.multiplicity.to(device))

    def scaled(self, factor: Float[Tensor, "total_patches"]) -> Patches:
        """The same patches with multiplicities times `factor`."""
        return replace(self, multiplicity=self.multiplicity * factor)
