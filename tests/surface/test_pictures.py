import numpy as np
import pytest

from gcgp import GCGPClassifier, Signals
from gcgp.surface.pictures import draw_evidence

FAST = {"n_inducing": 8, "progress": False, "variance": 3.0, "lengthscale": 0.4, "location": False}


def drawn(signals, path):
    labels = np.arange(len(signals)) % 2
    model = GCGPClassifier(**FAST).fit(signals, labels)
    shown = signals[:2]
    draw_evidence(shown, model.predict_proba(shown), model.evidence(shown), [0, 1], [0, 1], path)
    return path.read_bytes()


def test_images_and_graphs_are_drawn(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "picture.png"
    assert drawn(Signals.from_images(rng.random((10, 5, 5))), path).startswith(b"\x89PNG")
    places = rng.random((5, 2))
    plane = Signals.on_graph(rng.random((10, 5)), [[0, 1], [2, 3]], coordinates=places)
    assert drawn(plane, path).startswith(b"\x89PNG")


def test_a_graph_without_coordinates_cannot_be_drawn(tmp_path):
    values = np.random.default_rng(0).random((10, 5))
    with pytest.raises(ValueError, match="needs an image or a graph with 2-D coordinates"):
        drawn(Signals.on_graph(values, [[0, 1]]), tmp_path / "picture.png")
