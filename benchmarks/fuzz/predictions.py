"""Properties of the predictions of any fitted model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import gcgp
from benchmarks.fuzz.judging import check, check_close, check_finite
from gcgp import Signals
from gcgp.domain import as_signals


def outputs(model: Any, data: Any) -> dict[str, np.ndarray]:
    """All predictions of a model."""
    mean, std = model.predict_latent(data, return_std=True)
    results = {"latent mean": mean, "latent standard deviation": std}
    if hasattr(model, "predict_proba"):
        results["probabilities"] = model.predict_proba(data)
    else:
        results["prediction"], results["standard deviation"] = model.predict(data, return_std=True)
    return results


def check_predictions(model: Any, data: Any, *, alone: bool = True, saved_in: Path | None = None) -> None:
    """Predictions are finite, and the same for a signal alone and for a model that was saved and loaded."""
    signals: Signals = as_signals(data)
    results = outputs(model, signals)
    for name, values in results.items():
        check(len(values) == len(signals), f"{name} has {len(values)} rows for {len(signals)} signals")
        check_finite(name, values)
    if "probabilities" in results:
        sums = results["probabilities"].sum(axis=1)
        check_close("sums of probabilities", sums, np.ones(len(signals)))
        check(bool((results["probabilities"] >= 0).all()), "a probability is negative")
    evidence = model.evidence(signals)
    check_finite("evidence", evidence.mean)
    check_finite("standard deviation of the evidence", evidence.std)
    if alone:
        n = len(signals) // 2
        for name, values in outputs(model, signals[n : n + 1]).items():
            scale = 1.0 if name == "probabilities" else max(1.0, float(np.abs(values).max()))
            # A standard deviation is the root of a difference of variances, which loses precision.
            tolerance = 2e-4 if name.endswith("standard deviation") else 1e-5
            check_close(f"{name} of signal {n} alone", values[0], results[name][n], tolerance * scale)
    if saved_in is not None:
        path = saved_in / "saved.gcgp"
        gcgp.save(model, path)
        for name, values in outputs(gcgp.load(path), signals).items():
            check(np.array_equal(values, results[name]), f"{name} changes when the model is saved and loaded")
