"""Containers of models: one safetensors file whose header holds a JSON description and a checksum."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gcgp import __version__
from gcgp._runtime.atomic import atomic_write
from gcgp.io.checks import as_object

FORMAT = "gcgp-model"
FORMAT_VERSION = 8
READ_ERRORS = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError),
    *(RuntimeError, OSError, MemoryError, SafetensorError),
)
"""Exceptions that reading arbitrary content may raise."""


@contextlib.contextmanager
def errors_about(path: str | Path, problem: str) -> Iterator[None]:
    """Turn any error of the block into a ValueError that names the file and the problem."""
    try:
        yield
    except READ_ERRORS as error:
        reason = f": {error}" if isinstance(error, ValueError) else f" ({type(error).__name__}: {error})"
        raise ValueError(f"{path}: {problem}{reason}") from error


def write_container(path: str | Path, description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a JSON description and named tensors to `path`, which is replaced only once all is written."""
    text = json.dumps(description)
    # Copies, because safetensors refuses tensors that share memory.
    copies = {key: tensor.detach().contiguous().clone() for key, tensor in tensors.items()}
    metadata = {
        "format": FORMAT,
        "version": str(FORMAT_VERSION),
        "model": text,
        "digest": checksum(text, copies),
    }
    with atomic_write(path, durable=True) as part:
        save_file(copies, part, metadata)


def read_container(path: str | Path) -> tuple[Any, dict[str, Tensor]]:
    """The description and the tensors of a file written by `write_container`.

    A file that is truncated, damaged, of another format version or of another kind raises a ValueError with
    the path.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no model file at {path}")
    problem = "not a gcgp model file, or truncated or damaged"
    with errors_about(path, problem), safe_open(str(path), framework="pt") as file:
        metadata = file.metadata() or {}
        # Copies, because results may differ in the last bit with the alignment in memory.
        tensors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path}: a safetensors file, but not a gcgp model")
    if metadata.get("version") != str(FORMAT_VERSION):
        raise ValueError(
            f"{path}: model format {metadata.get('version')}, but gcgp {__version__} reads {FORMAT_VERSION}; "
            "load the file with the version of gcgp that wrote it, or fit the model again"
        )
    text = metadata.get("model", "")
    if metadata.get("digest") != checksum(text, tensors):
        raise ValueError(f"{path}: damaged (its contents do not match their checksum)")
    with errors_about(path, "not a valid gcgp model"):
        as_object("metadata", metadata, ("format", "version", "model", "digest"))
        return json.loads(text), tensors


def checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of a description and of the names, dtypes, shapes and bytes of tensors."""
    digest = hashlib.sha256(text.encode())
    for key in sorted(tensors):
        tensor = tensors[key]
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
