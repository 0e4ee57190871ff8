"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

PART = ".part"
"""Ending of files that are being written."""


@contextlib.contextmanager
def atomic_write(path: str | Path, *, durable: bool = False) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` at the end if nothing failed.

    Whoever reads `path` meanwhile sees what was there before. `durable` waits until the disk has it.
    If it cannot be written (the disk is full, say), the OSError names `path`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "note.txt") as part:
    ...         _ = part.write_text("done")
    ...     (Path(folder) / "note.txt").read_text()
    'done'
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}{PART}")
    try:
        yield part
        if durable:
            with open(part, "r+b") as written:  # Windows waits only for files opened for writing
                os.fsync(written.fileno())
        os.replace(part, target)
    except (OSError, SafetensorError) as error:
        raise _with_path(error, target) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _with_path(error: Exception, path: Path) -> OSError:
    """The same error as an OSError that names the file; safetensors has errors of its own."""
    number = re.search(r"os error (\d+)", str(error))
    if isinstance(error, OSError) and error.errno is not None:
        return OSError(error.errno, error.strerror, str(path))
    if number is not None:
        return OSError(int(number[1]), os.strerror(int(number[1])), str(path))
    return OSError(f"{path} could not be written: {error}")
