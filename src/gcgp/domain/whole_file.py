"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

PART = ".part"
"""Ending of files that are being written."""


@contextlib.contextmanager
def whole_file(path: str | Path, *, durable: bool = False) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` at the end if nothing failed.

    Whoever reads `path` meanwhile sees what was there before. `durable` waits until the disk has it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(Path(folder) / "note.txt") as part:
    ...         _ = part.write_text("done")
    ...     (Path(folder) / "note.txt").read_text()
    'done'
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}{PART}")
    try:
        yield part
        if durable:
            with open(part, "rb") as written:
                os.fsync(written.fileno())
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
