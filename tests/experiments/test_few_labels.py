"""The table of few labels: its data, its baselines and its command."""

import json
from dataclasses import replace

import numpy as np
import pytest
import trimesh
from sklearn.datasets import load_digits

from experiments import data, few_labels, image_networks, networks
from experiments.command_line import main
from experiments.models import fit_defaults
from experiments.runs import Run, Settings
from experiments.shape_baselines import logistic_regression, pooled_signatures, shape_dna
from experiments.tables import TABLES
from gcgp import Mesh


@pytest.fixture(autouse=True)
def no_other_data(monkeypatch, tmp_path):
    monkeypatch.delenv("GCGP_DATA", raising=False)
    monkeypatch.setattr(data, "DEBIAN_DATASETS", tmp_path / "debian")
    few_labels.load_meshes.cache_clear()


def write_idx(path, array):
    array = np.asarray(array, dtype=np.uint8)
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.write_bytes(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes())


def write_images(folder):
    """The 8 × 8 digits of scikit-learn in the files of MNIST: 1,000 for training and 100 for testing."""
    folder.mkdir(parents=True)
    images, labels = load_digits(return_X_y=True)
    for part, rows in (("train", slice(0, 1000)), ("t10k", slice(1000, 1100))):
        write_idx(folder / f"{part}-images-idx3-ubyte", images[rows].reshape(-1, 8, 8) * 15)
        write_idx(folder / f"{part}-labels-idx1-ubyte", labels[rows])


def ellipsoid(label, rng):
    sphere = trimesh.creation.icosphere(subdivisions=2)
    noise = 0.01 * rng.normal(size=sphere.vertices.shape)
    return Mesh(sphere.vertices * [1, 1, 1 + label] + noise, sphere.faces)


def write_tosca(folder, counts):
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for label, (name, count) in enumerate(counts.items()):
        for number in range(count):
            mesh = ellipsoid(label, rng)
            trimesh.Trimesh(mesh.vertices, mesh.faces, process=False).export(folder / f"{name}{number}.off")


def few_run(condition, folder, seed=0):
    return Run("few-labels", "gcgp", condition, seed, Settings(data=str(folder)))


def test_data_that_are_missing_are_skipped_with_a_note(tmp_path, capsys):
    write_images(tmp_path / "fashion-mnist")
    settings = Settings(data=str(tmp_path))
    assert few_labels.conditions(settings) == [
        f"Fashion-MNIST, {count} labels" for count in (100, 300, 1000, 5000)
    ]
    notes = capsys.readouterr().err
    assert f"MNIST skipped: no train-images-idx3-ubyte[.gz] in {tmp_path} or its subfolder mnist" in notes
    assert "FAUST skipped: " in notes
    assert "no .ply or .off file for tr_reg_000" in notes
    assert f"TOSCA skipped: no .off files in {tmp_path / 'tosca'}" in notes
    with pytest.raises(ValueError, match="no data for the model shape-dna"):
        TABLES["few-labels"].runs("few-labels", ["shape-dna"], 1, settings)


def test_without_any_data():
    with pytest.raises(FileNotFoundError, match="no data for this table"):
        few_labels.conditions(Settings())


def test_models_run_only_on_their_kind_of_data(tmp_path):
    write_images(tmp_path / "mnist")
    write_tosca(tmp_path / "tosca", {"cat": 3, "dog": 3})
    runs = TABLES["few-labels"].runs("few-labels", [], 1, Settings(str(tmp_path), 1, None, 100))
    assert [(run.model, run.condition) for run in runs] == [
        ("gcgp", "MNIST, 10 labels"),
        ("gcgp-layers", "MNIST, 10 labels"),
        ("cnn", "MNIST, 10 labels"),
        ("cnn-shifted", "MNIST, 10 labels"),
        ("gcgp", "TOSCA, 1 per class, 100 vertices"),
        ("gcgp-layers", "TOSCA, 1 per class, 100 vertices"),
        ("shape-dna", "TOSCA, 1 per class, 100 vertices"),
        ("signatures", "TOSCA, 1 per class, 100 vertices"),
    ]


def test_images_are_drawn_per_class_and_tested_on_all(tmp_path):
    write_images(tmp_path / "fashion-mnist")
    first, second = (few_labels.split(few_run("Fashion-MNIST, 30 labels", tmp_path, seed)) for seed in (0, 1))
    assert np.bincount(first.labels).tolist() == [3] * 10
    assert (len(first.train), len(first.test)) == (30, 100)
    assert not np.array_equal(first.train, second.train)


def test_meshes_have_area_one_and_all_others_are_tested(tmp_path):
    write_tosca(tmp_path / "tosca", {"cat": 5, "dog": 4, "wolf": 2})
    settings = replace(few_run("", tmp_path).settings, vertices=100)
    run = replace(few_run("TOSCA, 3 per class, 100 vertices", tmp_path), settings=settings)
    split = few_labels.split(run)
    assert sorted(split.labels) == ["cat"] * 3 + ["dog"] * 3 + ["wolf"]
    assert sorted(split.truth) == ["cat", "cat", "dog", "wolf"]
    assert not {mesh.name for mesh in split.train} & {mesh.name for mesh in split.test}
    assert {len(mesh.vertices) for mesh in split.train} == {100}
    np.testing.assert_allclose([mesh.area for mesh in split.train + split.test], 1.0)
    with pytest.raises(ValueError, match="class 'fox' has one mesh"):
        few_labels.draw_meshes(np.array(["cat", "cat", "fox"]), 1, 0)


@pytest.mark.parametrize("features", [shape_dna, pooled_signatures])
def test_baselines_on_meshes(features):
    rng = np.random.default_rng(0)
    labels = np.repeat([3, 5, 9], 6)
    meshes = [ellipsoid(label, rng) for label in np.repeat([0, 1, 2], 6)]
    train = np.arange(18) % 6 < 2
    fit = logistic_regression(features)
    model = fit([meshes[i] for i in np.flatnonzero(train)], labels[train], None, 0)
    assert model.note["inverse_penalty"] > 0
    probabilities = model.predict(meshes)
    assert probabilities.shape == (18, 3)
    np.testing.assert_array_equal(np.array([3, 5, 9])[probabilities.argmax(axis=1)], labels)
    one_each = fit(meshes[::6], labels[::6], None, 0)
    assert one_each.note == {"inverse_penalty": 1.0}


@pytest.mark.parametrize("features", [shape_dna, pooled_signatures])
def test_features_do_not_depend_on_size_or_pose(features):
    mesh = ellipsoid(1, np.random.default_rng(0))
    turned = Mesh(mesh.vertices[:, [1, 2, 0]] * 7, mesh.faces)
    first, second = features([mesh])([mesh, turned])
    np.testing.assert_allclose(first, second, rtol=1e-5)


def test_the_area_mean_of_a_heat_kernel_signature_is_the_heat_trace():
    from gcgp import HeatKernelSignature
    from gcgp.mesh.spectrum import laplace_beltrami

    mesh = ellipsoid(1, np.random.default_rng(0))
    times = HeatKernelSignature(scale="area").fit([mesh]).times_
    eigenvalues = laplace_beltrami(mesh).at_unit_area().eigenvalues
    (row,) = pooled_signatures([mesh])([mesh])
    np.testing.assert_allclose(row[:8], np.log(np.exp(-np.outer(times, eigenvalues)).sum(axis=1)), rtol=1e-6)


def test_images_are_shifted():
    images = np.arange(1, 17, dtype=float).reshape(1, 4, 4).repeat(50, axis=0)
    shifted = image_networks.shift(images, np.random.default_rng(0))
    assert shifted.shape == images.shape
    places = {tuple(np.argwhere(image == 6)[0]) for image in shifted if 6 in image}
    assert len(places) > 5
    for image in shifted:
        y, x = np.argwhere(image == image.max())[0]
        value = int(image.max()) - 1
        assert abs(y - value // 4) <= 2
        assert abs(x - value % 4) <= 2


@pytest.mark.parametrize("shifted", [False, True])
def test_all_images_train_the_final_network(monkeypatch, shifted):
    monkeypatch.setattr(networks, "CHANNELS", (4, 8, 8))
    monkeypatch.setattr(networks, "ON_GRAPHS", replace(networks.ON_GRAPHS, min_steps=120))
    images, labels = load_digits(n_class=3, return_X_y=True)
    images, seen = images.reshape(-1, 8, 8) / 16, []
    original = image_networks.training_epochs

    def spy(model, batch, labels, fitted, *others):
        seen.append(len(fitted))
        return original(model, batch, labels, fitted, *others)

    monkeypatch.setattr(image_networks, "training_epochs", spy)
    monkeypatch.setattr(networks, "training_epochs", spy)
    fit = image_networks.few_label_network(shifted)
    model = fit(images[:60], labels[:60], None, 0)
    assert seen == [48, 60]
    assert (model.predict(images[100:]).argmax(axis=1) == labels[100:]).mean() > 0.6
    np.testing.assert_array_equal(
        model.predict(images[100:]), fit(images[:60], labels[:60], None, 0).predict(images[100:])
    )


def test_defaults_on_meshes():
    rng = np.random.default_rng(0)
    meshes, labels = [ellipsoid(label, rng) for label in (0, 2, 0, 2)], np.array([5, 9, 5, 9])
    model = fit_defaults(meshes[:2], labels[:2], 7, 0)
    assert model.note["inducing"] <= 7
    np.testing.assert_array_equal(model.predict(meshes).argmax(axis=1), labels == 9)


def test_the_command_of_few_labels(tmp_path, capsys):
    write_tosca(tmp_path / "tosca", {"cat": 3, "dog": 3})
    options = ["--data", str(tmp_path), "--results", str(tmp_path / "results"), "--vertices", "100"]
    assert main(["few-labels", "--model", "shape-dna", *options, "--per-class", "2", "--seeds", "2"]) == 0
    content = json.loads((tmp_path / "results" / "few-labels.json").read_text())
    assert [run["seed"] for run in content["runs"].values()] == [0, 1]
    assert {(run["train"], run["test"]) for run in content["runs"].values()} == {(4, 2)}
    printed = capsys.readouterr()
    assert "ShapeDNA, logistic regression" in printed.out
    assert "MNIST skipped" in printed.err
