"""All targets: functions that build a case from random draws and a folder to write to."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.fuzz import cache_files, fits, inputs, mesh_files, model_files
from benchmarks.fuzz.draws import Draw
from benchmarks.fuzz.judging import Outcome, judge

Make = Callable[[Draw, Path], Callable[[], None]]


class Target(NamedTuple):
    """How cases are built, and the percentage of cases of this target."""

    make: Make
    share: float


TARGETS = {
    "images": Target(inputs.image_inputs, 8),
    "graphs": Target(inputs.graph_inputs, 10),
    "meshes": Target(inputs.mesh_inputs, 8),
    "pyg": Target(inputs.pyg_inputs, 5),
    "networkx": Target(inputs.networkx_inputs, 5),
    "containers": Target(inputs.container_inputs, 3),
    "mesh files": Target(mesh_files.mesh_files, 14),
    "model files": Target(model_files.model_files, 12),
    "cache files": Target(cache_files.cache_files, 8),
    "fit": Target(fits.fits, 14),
    "options": Target(fits.options, 12),
    "defaults": Target(fits.default_fits, 3),
    "predict": Target(fits.predictions, 10),
}


class Result(NamedTuple):
    """The outcome of a case and its description."""

    outcome: Outcome
    description: str


def run_case(
    target: str, seed: int, folder: Path, announce: Callable[[str], None] = lambda description: None
) -> Result:
    """Build a case, announce its description, and run it."""
    draw = Draw(np.random.default_rng([zlib.crc32(target.encode()), seed]))
    try:
        run = TARGETS[target].make(draw, folder)
    except Exception as error:
        return Result(Outcome("invalid case", f"{type(error).__name__}: {error}"), draw.description)
    announce(draw.description)
    return Result(judge(run), draw.description)
