"""Timing that a noisy machine does not fool: rounds interleave the contestants, the best of each counts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def best_seconds(contestants: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The least time of each contestant over rounds in which each runs once."""
    best = dict.fromkeys(contestants, float("inf"))
    for run in contestants.values():
        run()
    for _ in range(rounds):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def report(title: str, rows: dict[str, str], results: dict[str, Any], path: Path | None) -> None:
    """Print a table, and write the results as JSON if a path is given."""
    width = max(map(len, rows))
    print(title)
    for name, value in rows.items():
        print(f"  {name:<{width}}  {value:>12}")
    if path is not None:
        path.write_text(json.dumps(results, indent=2) + "\n")
