"""Command line, timing and reports that all benchmarks share."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def command_line(description: str | None, *, mnist: bool = False) -> argparse.ArgumentParser:
    """The options of all benchmarks and, with `mnist`, of those that need MNIST."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if mnist:
        parser.add_argument(
            "--data", type=Path, metavar="FOLDER", help="folder of MNIST (default: GCGP_DATA)"
        )
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


def best_seconds(contestants: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The shortest time of each contestant, over rounds in which each runs once."""
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
    """Print a table and, if a path is given, write the results as JSON."""
    width = max(map(len, rows))
    print(title)
    for name, value in rows.items():
        print(f"  {name:<{width}}  {value:>12}")
    if path is not None:
        path.write_text(json.dumps(results, indent=2) + "\n")
