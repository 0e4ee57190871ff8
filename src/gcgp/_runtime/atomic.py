"""Atomic writes: files that are replaced completely or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

PARTIAL_SUFFIX = ".part"
"""Suffix of files that are being written."""


@contextlib.contextmanager
def atomic_write(path: str | Path, *, durable: bool = False) -> Iterator[Path]:
    """A path to write to, which replaces `path` at the end if nothing failed.

    Until then, readers of `path` see the previous file. `durable` waits until the disk has stored it. Errors
    of writing, such as a full disk, are OSErrors that name `path`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "note.txt") as part:
    ...         _ = part.write_text("done")
    ...     (Path(folder) / "note.txt").read_text()
    'done'
    """
    target = Path(path)
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}{PARTIAL_SUFFIX}")
    try:
        yield part
        if durable:
            with open(part, "r+b") as written:  # Windows syncs only files opened for writing
                os.fsync(written.fileno())
        os.replace(part, target)
    except (OSError, SafetensorError) as error:
        raise _with_path(error, target) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _with_path(error: Exception, path: Path) -> OSError:
    """The same error as an OSError that names the file; safetensors raises its own type."""
    number = re.search(r"os error (\d+)", str(error))
    if isinstance(error, OSError) and error.errno is not None:
        return OSError(error.errno, error.strerror, str(path))
    if number is not None:
        return OSError(int(number[1]), os.strerror(int(number[1])), str(path))
    return OSError(f"{path} could not be written: {error}")
