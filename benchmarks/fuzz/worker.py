"""A process that runs cases one after the other: JSON lines in, JSON lines out."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

MEMORY_LIMIT = 6 << 30
"""Allocations beyond this number of bytes fail, which protects the machine."""


def main(folder: Path) -> None:
    """Answer requests until the input ends."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, MEMORY_LIMIT))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other output must not mix with answers
    from benchmarks.fuzz.targets import run_case
    from benchmarks.fuzz.warming import warm_up
    from experiments.metrics import peak_memory

    def send(**message: Any) -> None:
        print(json.dumps(message), file=answers, flush=True)

    warm_up(folder)
    send(kind="ready", peak_gb=peak_memory())
    for line in sys.stdin:
        request = json.loads(line)
        result = run_case(
            request["target"],
            request["seed"],
            folder,
            lambda description: send(kind="announcement", description=description),
        )
        send(
            kind=result.outcome.kind,
            detail=result.outcome.detail,
            description=result.description,
            peak_gb=peak_memory(),
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
