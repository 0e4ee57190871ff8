"""Random choices that are recorded, so that a failing case can be described."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


class Draw:
    """A random generator that records what it draws."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Record a text, shortened."""
        self.notes.append(text if len(text) <= 160 else text[:157] + "...")

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return bool(self.rng.random() < probability)

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def one_of(self, items: Sequence[T]) -> T:
        """An item, not recorded."""
        return items[self.integer(0, len(items) - 1)]

    def value(self, name: str, items: Sequence[T]) -> T:
        """An item, recorded by its representation."""
        item = self.one_of(items)
        self.note(f"{name}={item!r}")
        return item

    def named(self, name: str, items: Mapping[str, T]) -> T:
        """An item, recorded by its key."""
        key = self.one_of(list(items))
        self.note(f"{name}: {key}")
        return items[key]

    def apply(self, name: str, changes: Mapping[str, Callable[[Draw, Any], Any]], item: Any) -> Any:
        """The item after a random change."""
        return self.named(name, changes)(self, item)

    @property
    def description(self) -> str:
        """All notes."""
        return "; ".join(self.notes)
