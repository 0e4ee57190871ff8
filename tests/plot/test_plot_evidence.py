import subprocess
import sys

import numpy as np
import pytest
import trimesh
from sklearn.pipeline import make_pipeline

from gcgp import (
    GCGPClassifier,
    GCGPRegressor,
    GeometryVectors,
    Mesh,
    Patch,
    PatchKernel,
    Signals,
    plot_evidence,
    plot_mesh_evidence,
)
from gcgp.plot.evidence import _contrast

FAST = {"n_inducing": 8, "kernel": PatchKernel(lengthscale=0.4, variance=3.0), "patch": Patch(position=False)}
RNG_VALUES = np.random.default_rng(0).random((10, 5))


def titles(figure):
    return [axes.get_title(loc="left") for axes in figure.axes]


def planar_graphs():
    positions = np.random.default_rng(1).random((5, 2))
    return Signals.on_graph(RNG_VALUES, [[0, 1], [2, 3]], coordinates=positions)


@pytest.mark.parametrize("kind", ["images", "graphs"])
def test_rows_of_a_classifier(tmp_path, kind):
    signals = planar_graphs() if kind == "graphs" else np.random.default_rng(0).random((10, 4, 5))
    model = GCGPClassifier(**FAST).fit(signals, ["a", "b", "c", "a", "b"] * 2)
    path = tmp_path / "evidence.png"
    figure = plot_evidence(model, signals[:2], ["a", "b"], path)
    assert path.read_bytes().startswith(b"\x89PNG")
    probabilities = model.predict_proba(signals[:2])
    best, second = np.argsort(probabilities[0])[::-1][:2]
    assert titles(figure)[:4] == [
        "true class a",
        f"{model.classes_[best]} with {probabilities[0, best]:.0%}",
        f"evidence for {model.classes_[best]}",
        f"evidence for {model.classes_[second]}",
    ]
    assert len(figure.axes) == 8
    heights = [bar.get_height() for bar in figure.axes[1].patches]
    np.testing.assert_allclose(heights, probabilities[0])
    shown = figure.axes[2].images if kind == "images" else figure.axes[2].collections[-1:]
    expected = _contrast(model.evidence(signals[:1]).mean, int(best))
    np.testing.assert_allclose(np.asarray(shown[0].get_array()).ravel(), expected, rtol=1e-6)
    if kind == "graphs":
        assert len(figure.axes[0].collections[0].get_segments()) == 2
        assert titles(plot_evidence(model, signals[:1]))[0] == ""


def test_rows_of_a_regressor():
    images = np.random.default_rng(0).random((12, 4, 4))
    model = GCGPRegressor(**FAST).fit(images, images.mean(axis=(1, 2)))
    figure = plot_evidence(make_pipeline("passthrough", model), images[:2], [0.25, 0.75])
    assert len(figure.axes) == 4
    assert titles(figure)[0] == "true target 0.25"
    mean, std = model.predict(images[:2], return_std=True)
    assert titles(figure)[3] == f"predicted {mean[1]:.4g} ± {std[1]:.2g}"
    np.testing.assert_allclose(figure.axes[1].images[0].get_array(), model.evidence(images)[0][0][:, :, 0])


def test_signals_that_cannot_be_plotted():
    graphs = Signals.on_graph(RNG_VALUES, [[0, 1]])
    model = GCGPClassifier(**FAST).fit(graphs, [0, 1] * 5)
    with pytest.raises(ValueError, match="X: graphs without two-dimensional coordinates cannot be plotted"):
        plot_evidence(model, graphs[:2])
    with pytest.raises(ValueError, match="X: plot_mesh_evidence needs signals on meshes, got graphs"):
        plot_mesh_evidence(model, graphs[:2])
    with pytest.raises(ValueError, match="y: 1 labels for 2 signals"):
        plot_evidence(model, graphs[:2], [0])


def test_meshes_through_a_pipeline(tmp_path):
    rng, sphere = np.random.default_rng(0), trimesh.creation.icosphere(subdivisions=1)
    meshes = [
        Mesh(sphere.vertices * [1, 1, 1 + n % 2] + 0.02 * rng.normal(size=(42, 3)), sphere.faces)
        for n in range(6)
    ]
    model = make_pipeline(GeometryVectors(2), GCGPClassifier("radial", n_inducing=8)).fit(meshes, [0, 1] * 3)
    path = tmp_path / "evidence.svg"
    figure = plot_mesh_evidence(model, meshes[:2], [0, 1], path)
    assert path.read_text().startswith("<?xml")
    assert titles(figure)[4] == "true class 1"
    assert len(figure.axes) == 8
    assert len(figure.axes[2].collections[0].get_paths()) > len(sphere.faces)  # subdivided


def test_without_matplotlib_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import gcgp\n"
        "try:\n    gcgp.plot_evidence\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "plots need matplotlib: pip install 'gcgp[plot]'\n"
