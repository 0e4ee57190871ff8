"""What benchmarks share: options, timing that a noisy machine does not fool, and reports."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def command_line(description: str | None, *, mnist: bool = False) -> argparse.ArgumentParser:
    """The options that all benchmarks have, and that for the folder of MNIST."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if mnist:
        parser.add_argument("--data", type=Path, metavar="FOLDER", help="of MNIST (default: GCGP_DATA)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


def best_seconds(contestants: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The least time of each contestant over rounds in which each runs once, one after the other."""
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
