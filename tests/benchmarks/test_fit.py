"""A small run of `python -m benchmarks.fit`."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import fit


def test_times_of_fits_are_compared_with_those_of_features(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("GCGP_DATA", raising=False)
    path = tmp_path / "fit.json"
    fit.main(["--images", "40", "--graphs", "60", "--rounds", "1", "--search", "none", "--json", str(path)])
    results, printed = json.loads(path.read_text()), capsys.readouterr().out
    for name in ("40 images", "60 graphs"):
        timing = results[name]
        ratio = timing["fit_cpu_seconds"] / timing["features_cpu_seconds"]
        assert timing["fit_over_features"] == pytest.approx(ratio)
        assert timing["fit_over_features"] > 1
        assert f"{name}: fit / features" in printed
    assert results["40 images"]["error"] < 0.8
    assert results["search"] is None


def test_problems_have_balanced_classes_and_other_test_signals(monkeypatch):
    monkeypatch.delenv("GCGP_DATA", raising=False)
    images, rings = fit.image_problem(None, 50), fit.ring_problem(2025)
    assert np.bincount(images.labels).tolist() == np.bincount(images.truth).tolist() == [5] * 10
    assert not {image.tobytes() for image in images.train} & {image.tobytes() for image in images.test}
    assert np.bincount(rings.labels).tolist() == [135] * 15
    assert set(rings.train.vertex_counts) == {5}
    assert rings.train.channels == 2
    assert len(rings.test) == len(rings.truth) == 2025
