"""Compilation of the loops that cases use, before any case is timed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.fuzz import bases
from benchmarks.fuzz.inputs import check_signals
from benchmarks.fuzz.predictions import check_predictions
from gcgp import GeodesicPolar, Learn, Mesh, Polar
from gcgp.domain.mesh_charts import mesh_chart
from gcgp.mesh.spectrum import laplace_beltrami


def warm_up(folder: Path) -> None:
    """Fit and predict once per kind of domain and precision."""
    for kind in bases.KINDS:
        for regression in (False, True):
            bases.fitted(kind, regression)
    rng = np.random.default_rng(0)
    for kind in bases.KINDS:
        for values in ("float32", "float64"):
            for dtype in ("float32", "float64"):
                signals = bases.valid_signals(kind, rng)
                signals = replace(signals, values=signals.values.astype(values))
                signals.values[::2] = 0.0  # identical patches are counted by another loop
                model = bases.estimator(False, runtime__dtype=dtype).fit(signals, [0, 1] * 3)
                check_predictions(model, signals, saved_in=folder)
    for kind, weighting in (("images", Polar([1.0], 2)), ("meshes", GeodesicPolar([0.5], 2))):
        for dtype in ("float32", "float64"):
            signals = bases.valid_signals(kind, rng)
            model = bases.estimator(False, weighting=weighting, runtime__dtype=dtype, learn=Learn(max_iter=1))
            check_predictions(model.fit(signals, [0, 1] * 3), signals)
    for lengths in (False, True):
        for coordinates in (False, True):
            check_signals(bases.graph_signals(bases.graphs(rng), lengths, coordinates))
    mesh = Mesh(bases.OCTAHEDRON, bases.FACES)
    mesh_chart(mesh, ("rho", "theta", "rays:4"), 1.0)
    laplace_beltrami(mesh, 3)
