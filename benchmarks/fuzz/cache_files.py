"""Cases: files of the chart cache that are damaged, or contain other arrays with a valid checksum."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fuzz import bases
from benchmarks.fuzz.draws import Draw
from benchmarks.fuzz.inputs import check_chart
from benchmarks.fuzz.judging import check, check_finite
from benchmarks.fuzz.predictions import outputs
from benchmarks.fuzz.values import Change, hostile
from gcgp import Mesh, Signals
from gcgp._runtime.cache import CACHE_SUFFIX, CACHE_VARIABLE
from gcgp._runtime.cache_file import read_arrays, write_arrays
from gcgp.domain.mesh_charts import mesh_chart
from gcgp.mesh.spectrum import laplace_beltrami

Run = Callable[[], None]
MESH = Mesh(bases.OCTAHEDRON * [1.0, 1.5, 0.7], bases.FACES)
COORDINATES = ("rho", "theta", "rays:4")


def _predicted() -> list[np.ndarray]:
    signals = Signals.on_meshes(np.random.default_rng(4).normal(size=(1, 6)), [MESH])
    return list(outputs(bases.fitted("meshes", False), signals).values())


def _charted() -> list[np.ndarray]:
    chart = mesh_chart(MESH, COORDINATES, 1.0)
    check_chart(chart, len(MESH.vertices))
    return [chart.neighbors, *(np.nan_to_num(chart.coordinates[name]) for name in COORDINATES)]


def _spectrum() -> list[np.ndarray]:
    spectrum = laplace_beltrami(MESH, 4)
    return [spectrum.eigenvalues, spectrum.eigenfunctions, spectrum.mass]


USES: dict[str, Callable[[], list[np.ndarray]]] = {
    "prediction": _predicted,
    "chart": _charted,
    "spectrum": _spectrum,
}


@cache
def _prepared(use: str, folder: Path) -> tuple[Path, list[np.ndarray]]:
    """A cache folder filled by a use, and the result of the use."""
    bases.fitted("meshes", False)  # so that its training charts are never in the folder
    filled = folder / f"filled-{use}"
    return filled, _with_cache(filled, USES[use])


def _with_cache(folder: Path, run: Callable[[], Any]) -> Any:
    before = os.environ.get(CACHE_VARIABLE)
    os.environ[CACHE_VARIABLE] = str(folder)
    try:
        return run()
    finally:
        if before is None:
            del os.environ[CACHE_VARIABLE]
        else:
            os.environ[CACHE_VARIABLE] = before


INDICES = (-1, 6, 2**31 - 1, -(2**31), 1000, 0)


def _one_number(draw: Draw, array: Any) -> Any:
    changed = np.array(array)
    if changed.size:
        values = INDICES if changed.dtype.kind == "i" else (np.nan, np.inf, -1.0, 1e30, -np.inf, 0.0, 3.0)
        changed.reshape(-1)[draw.integer(0, changed.size - 1)] = draw.value("value", values)
    return changed


ARRAYS: dict[str, Change] = {
    "one number": _one_number,
    "shorter": lambda draw, array: array[:-1],
    "longer": lambda draw, array: np.concatenate([array, array]),
    "empty": lambda draw, array: array[:0],
    "zeros": lambda draw, array: np.zeros_like(array),
    "reversed": lambda draw, array: array[::-1].copy(),
    "transposed": lambda draw, array: np.asarray(array).T.copy(),
    "dtype": lambda draw, array: np.nan_to_num(array).astype(
        draw.value("dtype", ("f8", "i8", "f4", "bool", "i4"))
    ),
    "anything": lambda draw, array: hostile(draw, "array", array, 1.0),
}


def _rewritten(draw: Draw, path: Path) -> bool:
    """Other arrays with a valid checksum; True, because they may be accepted without a warning."""
    arrays = dict(read_arrays(path, path.stem))
    name = draw.value("array", list(arrays))
    changed = draw.apply("change", ARRAYS, arrays[name])
    if draw.chance(0.1):
        arrays["strange"] = arrays.pop(name)
    try:
        arrays[name] = np.asarray(changed)
        with np.errstate(all="ignore"):
            write_arrays(path, path.stem if draw.chance(0.9) else "other", arrays)
    except (ValueError, TypeError, RuntimeError):  # a cache file cannot contain such an array
        path.write_bytes(b"")
    return True


def _bytes_changed(draw: Draw, path: Path) -> bool:
    content = bytearray(path.read_bytes())
    for _ in range(draw.integer(1, 4)):
        content[draw.integer(0, len(content) - 1)] ^= draw.integer(1, 255)
    path.write_bytes(content)
    return False


def _truncated(draw: Draw, path: Path) -> bool:
    os.truncate(path, draw.integer(0, path.stat().st_size - 1))
    return False


def _longer(draw: Draw, path: Path) -> bool:
    os.truncate(path, path.stat().st_size + draw.value("bytes more", (1, 64, 10**6)))
    return False


def _other_thing(draw: Draw, path: Path) -> bool:
    thing = draw.value("thing", ("folder", "dangling link", "link to itself", "pipe", "header of a giant"))
    path.unlink()
    if thing == "folder":
        path.mkdir()
    elif thing == "dangling link":
        path.symlink_to(path.with_name("nothing"))
    elif thing == "link to itself":
        path.symlink_to(path)
    elif thing == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"gcgp\0\0\0\x01" + bytes(8) + (2**62).to_bytes(8, "little"))
    return thing == "dangling link"  # the same as a missing file


DAMAGE: dict[str, Callable[[Draw, Path], bool]] = {
    "arrays": _rewritten,
    "more arrays": _rewritten,
    "bytes": _bytes_changed,
    "truncated": _truncated,
    "longer": _longer,
    "other thing": _other_thing,
}


def cache_files(draw: Draw, folder: Path) -> Run:
    """A cache with one damaged file: results are the same or, if its arrays are plausible, finite."""
    use = draw.value("use", list(USES))
    filled, expected = _prepared(use, folder)
    copied = folder / "case-cache"
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(filled, copied)
    path = draw.one_of(sorted(copied.glob("*" + CACHE_SUFFIX)))
    plausible = draw.named("damage", DAMAGE)(draw, path)

    def run() -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            results = _with_cache(copied, USES[use])
        for warning in caught:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        for values in results:
            check_finite(use, values)
        same = all(np.array_equal(a, b) for a, b in zip(results, expected, strict=True))
        check(same or plausible, f"{use} changed with a damaged file")
        warned = any("cache" in str(warning.message) for warning in caught)
        check(warned or plausible, "no warning about a damaged file")

    return run
