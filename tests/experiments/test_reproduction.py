"""Tables of the paper made anew: what is run, what is kept, and what is told of it."""

import json
from dataclasses import replace

import numpy as np
import pytest
import trimesh
from sklearn.datasets import load_digits

from experiments import figures, models, networks, sets, uncertainty
from experiments.command_line import TABLE_NAMES, main
from experiments.metrics import calibration
from experiments.runs import Results, Run, Settings
from experiments.sets import on_one_vertex, some_of_each
from experiments.tables import TABLES, confused
from gcgp import GCGPClassifier, articulated_bodies
from gcgp.datasets.bodies import Bodies
from gcgp.descriptors.spectral import GeometryVectors
from gcgp.patches import Convolution
from gcgp.weighting import Radial
from outcomes import outcome

QUICK = Settings(per_class=3, inducing=7)


@pytest.fixture
def no_mnist(monkeypatch):
    monkeypatch.delenv("GCGP_DATA", raising=False)


def test_the_command_line_knows_every_table():
    assert tuple(TABLES) == TABLE_NAMES


def test_a_model_that_is_not_in_the_table():
    with pytest.raises(ValueError, match="model 'monet' is not in this table; it has conv-gp, rbf-gp"):
        TABLES["mnist"].runs("mnist", ["monet"], None, QUICK)


def test_draws_take_so_many_of_each_class():
    labels = np.repeat([3, 5, 9], [10, 4, 7])
    rows = some_of_each(labels, 5, seed=1)
    assert np.unique(labels[rows], return_counts=True)[1].tolist() == [5, 4, 5]
    assert rows.tolist() != some_of_each(labels, 5, seed=2).tolist()
    assert some_of_each(labels, None, seed=1).tolist() == list(range(21))


def test_without_mnist_it_says_which_digits_it_took(no_mnist, monkeypatch):
    digits = sets.Images(np.zeros((2000, 4, 4), dtype=np.float32), np.arange(2000) % 10)
    monkeypatch.setattr(sets, "load_digits", lambda: digits)
    split = sets.digits(QUICK, 3, seed=0)
    assert (len(split.labels), len(split.truth)) == (30, 1000)
    assert "no folder of MNIST was given" in split.differs[0]


def test_a_signal_on_one_vertex_is_its_own_patch():
    images = np.random.default_rng(0).random((3, 4, 4))
    patches = Convolution(Radial([0.0])).patches(on_one_vertex(images))
    np.testing.assert_allclose(patches.values.detach().numpy(), images.reshape(3, 16), rtol=1e-6)


def test_the_best_is_chosen_on_training_signals_alone(monkeypatch):
    seen = []

    class Spy:
        def __init__(self, lengthscale, n_inducing, random_state):
            self.lengthscale, self.n_inducing = lengthscale, n_inducing

        def fit(self, signals, labels):
            self.classes_, self.softmax_weight_ = np.unique(labels), 0.0
            self.features_ = type("Features", (), {"size": self.n_inducing})
            seen.append((self.lengthscale, self.n_inducing, len(signals)))
            self.known = set(signals.tolist())
            return self

        def predict_proba(self, signals):
            assert not self.known & set(signals.tolist())
            right = np.eye(2)[signals % 2]
            return 0.5 + (right - 0.5) * self.lengthscale  # the longer, the surer, and right

    monkeypatch.setattr(models, "GCGPClassifier", Spy)
    fit = models.best_of({"short": {"lengthscale": 0.1}, "long": {"lengthscale": 0.9}}, lambda count: 50)
    note = fit(np.arange(100), np.arange(100) % 2, None, 0).note
    assert note["chosen"] == "long"
    assert seen == [(0.1, 1000, 80), (0.9, 1000, 80), (0.9, 50, 100)]


def test_on_meshes_the_probabilities_of_all_candidates_are_averaged():
    bodies = articulated_bodies(persons=3, poses=3, vertices=400)
    learned = [n for n in range(9) if n % 3]
    train, labels = [bodies.meshes[n] for n in learned], bodies.persons[learned]
    candidates = {
        "rings": {"descriptor": GeometryVectors(2), "weighting": Radial([0.0, 0.1], 0.1)},
        "points": {"descriptor": GeometryVectors(3), "weighting": Radial([0.0], 0.1)},
    }
    found = models.mean_of(candidates)(train, labels, 10, 0)
    alone = [models.described(options, 10, 0).fit(train, labels) for options in candidates.values()]
    each = [model.predict_proba(bodies.meshes) for model in alone]
    np.testing.assert_allclose(found.predict(bodies.meshes), (each[0] + each[1]) / 2)
    assert found.note == {"inducing": 10, "averaged": ["rings", "points"]}


def test_many_signals_are_halved_to_choose(monkeypatch):
    monkeypatch.setattr(models, "CHOSEN_ON", 100)
    labels = np.arange(1000) % 10
    fitted, scored = models.to_choose(labels, seed=0)
    assert (len(fitted), len(scored)) == (100, 100)
    assert not set(fitted) & set(scored)


def test_of_few_signals_one_of_each_class_is_held_out():
    labels = np.repeat([3, 5, 9], 2)
    learned, held = sets.held_out(labels, 0.1, seed=0)
    assert sorted(labels[learned]) == sorted(labels[held]) == [3, 5, 9]
    assert sets.held_out(np.array([3, 3, 5]), 0.1, seed=0) is None
    assert models.to_choose(np.array([3, 3, 5]), seed=0) is None


def test_scales_share_the_inducing_patches():
    assert models.classifier({"weighting": ["polar", "polar"]}, 100, 0).n_inducing == 50
    assert models.classifier({}, 100, 0).n_inducing == 100


def faust_like(folder):
    """A folder of 100 small closed meshes in FAUST's names: persons differ in their proportions."""
    rng = np.random.default_rng(0)
    sphere = trimesh.creation.icosphere(subdivisions=2)
    for number in range(100):
        stretch = 1 + 0.1 * np.array([number // 10, (number // 10) % 3, 0])
        places = sphere.vertices * stretch + 0.01 * rng.normal(size=sphere.vertices.shape)
        trimesh.Trimesh(places, sphere.faces, process=False).export(folder / f"tr_reg_{number:03}.off")


def test_persons_are_split_by_poses(tmp_path):
    faust_like(tmp_path)
    settings = Settings(data=str(tmp_path))
    one, other = (sets.persons(settings, 40, 7, seed) for seed in (0, 1))
    assert (len(one.train), len(one.test)) == (70, 30)
    assert np.bincount(one.labels).tolist() == [7] * 10
    assert np.bincount(one.truth).tolist() == [3] * 10
    names = [{mesh.name for mesh in part} for part in (one.train, one.test)]
    assert not names[0] & names[1]
    assert {mesh.name for mesh in other.test} != names[1]
    assert {len(mesh.vertices) for mesh in one.train} == {40}
    few = sets.persons(settings, 40, 3, seed=0)
    assert {mesh.name for mesh in few.test} == names[1]
    with pytest.raises(ValueError, match="8 poses to learn from: 1 to 7 are possible"):
        sets.persons(settings, 40, 8, seed=0)


def test_persons_are_generated_without_faust(no_mnist, monkeypatch):
    bodies = articulated_bodies(1, 1, 200).meshes * 100
    made = Bodies(bodies, np.arange(100) // 10, np.arange(100) % 10)
    monkeypatch.setattr(sets, "articulated_bodies", lambda vertices: made)
    sets._bodies.cache_clear()
    split = sets.persons(Settings(), 200, 1, seed=0)
    assert len(split.train) == 10
    assert "no folder of FAUST was given" in split.differs[0]


def test_who_is_confused_with_whom():
    truth = np.repeat([4, 8, 1], [4, 2, 1])
    guess = np.array([4, 4, 8, 4, 8, 8, 8])
    second = np.array([8, 1, 4, 8, 4, 2, 4])
    probabilities = np.zeros((7, 10))
    probabilities[np.arange(7), guess] = 0.6
    probabilities[np.arange(7), second] = 0.3
    assert confused(models.Tested(None, None, probabilities, truth, None, 0)) == {
        "4 taken for 8": 0.25,
        "4 most like 8": 0.75,
        "8 taken for 4": 0.0,
        "8 most like 4": 0.5,
    }


@pytest.mark.parametrize("model", ["gcgp", "gcgp-radial", "gcgp-best"])
def test_one_command_makes_the_table_of_persons(tmp_path, capsys, model):
    faust_like(tmp_path)
    options = ["--data", str(tmp_path), "--results", str(tmp_path / "results")]
    quick = ["--per-class", "2", "--vertices", "40", "--inducing", "20", "--seeds", "2"]
    assert main(["reproduce", "faust", "--model", model, *options, *quick]) == 0
    content = json.loads((tmp_path / "results" / "faust.json").read_text())
    assert list(content["runs"]) == [f"{model} | 40 vertices, 2 poses | seed {seed}" for seed in (0, 1)]
    assert all(run["error"] < 0.6 for run in content["runs"].values())  # by chance 0.9
    assert "4 taken for 8" in capsys.readouterr().out


def test_calibration_in_bins_adds_up():
    rng = np.random.default_rng(0)
    probabilities, truth = rng.dirichlet(np.ones(3), size=500), rng.integers(3, size=500)
    count, sure, right = calibration(probabilities, truth, 10)
    assert count.sum() == 500
    assert sure.sum() == pytest.approx(probabilities.max(axis=1).sum())
    assert right.sum() == (probabilities.argmax(axis=1) == truth).sum()
    edges = np.linspace(0, 1, 11)
    full = count > 0
    assert (sure[full] / count[full] >= edges[:-1][full]).all()
    assert (sure[full] / count[full] <= edges[1:][full]).all()


def some_results(folder):
    for table, model, conditions in (
        ("ablation", "gcgp", ["100 a class", "500 a class"]),
        ("uncertainty", "cnn", ["all"]),
    ):
        results = Results(folder / f"{table}.json", table, Settings())
        for condition in conditions:
            bins = [[0.0, 10.0], [0.0, 9.0], [0.0, 8.0]]
            results.add(Run(table, model, condition, 0, Settings()), outcome(calibration=bins))


def test_figures_are_drawn_and_those_without_results_left_out(no_mnist, tmp_path, capsys):
    command = [
        "reproduce",
        "figures",
        "--results",
        str(tmp_path / "made"),
        "--report",
        str(tmp_path / "r.md"),
    ]
    names = ["weightings", "reliability", "training-size"]
    command += [part for name in names for part in ("--model", name)]
    assert main(command) == 0
    assert "left out: no results of `gcgp reproduce ablation` in" in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "made" / "figures").iterdir()) == [
        "weightings.png",
        "weightings.svg",
    ]
    some_results(tmp_path / "made")
    assert main(command) == 0
    for name in names:
        assert f"![{name}](made/figures/{name}.png)" in (tmp_path / "r.md").read_text()
        assert (tmp_path / "made" / "figures" / f"{name}.svg").read_text().startswith("<?xml")
    assert main([*command, "--model", "nonsense"]) == 1
    assert "figure 'nonsense' is unknown; there are weightings" in capsys.readouterr().err


def test_figures_that_need_a_model(no_mnist, tmp_path, monkeypatch):
    for name, value in {"PERSONS": 2, "POSES": 3, "FINEST": 300, "VERTICES": (100, 200)}.items():
        monkeypatch.setattr(figures, name, value)
    images, labels = load_digits(n_class=3, return_X_y=True)
    images = sets.Images((images / 16).reshape(-1, 8, 8).repeat(3, axis=1).repeat(3, axis=2), labels)
    monkeypatch.setattr(sets, "load_digits", lambda: images)
    monkeypatch.setattr(sets, "TEST_SIZE", 20)
    settings = Settings(per_class=6, inducing=6, vertices=200)
    drawn = ["construction", "resolutions", "learned-weighting", "evidence-digits", "evidence-bodies"]
    paths = figures.draw_all(drawn, settings, tmp_path)
    assert [path.stem for path in paths] == drawn
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.with_suffix(".svg").stat().st_size < 3e6


def test_rejecting_the_least_sure_lowers_the_error():
    sure = np.array([0.99, 0.9, 0.8, 0.7, 0.6])
    probabilities = np.stack([sure, 1 - sure], axis=1)
    truth = np.array([0, 0, 0, 1, 1])
    found = [uncertainty.error_of_the_rest(probabilities, truth, share) for share in (0.0, 0.2, 0.4)]
    assert found == pytest.approx([2 / 5, 1 / 4, 0.0])


def test_foreign_images_are_found_and_scored(no_mnist, tmp_path, monkeypatch):
    images = np.random.default_rng(0).random((30, 8, 8)).astype(np.float32)
    monkeypatch.setattr(uncertainty, "SYSTEM", tmp_path)
    names = [name for name, _ in uncertainty.foreign_images(None, images, 0)]
    assert names == ["noise", "turned by 90°"]
    (tmp_path / "kmnist").mkdir()
    header = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (40, 8, 8))
    (tmp_path / "kmnist" / "t10k-images-idx3-ubyte").write_bytes(header + bytes([255]) * 40 * 64)
    split = sets.Split(images, np.zeros(30), images, np.zeros(30))

    def predict(given):
        """Sure of what is dark, and not of what is bright."""
        p = 1 - 0.5 * given.mean(axis=(1, 2))
        return np.stack([p, 1 - p], axis=1)

    areas = uncertainty.foreign_scores(models.Trained(predict, {}), split, None, 1)
    assert areas["AUROC of entropy, KMNIST"] == 1.0
    assert areas["AUROC of entropy, turned by 90°"] == pytest.approx(0.5, abs=0.02)  # but for rounding
    assert 0.3 < areas["AUROC of entropy, noise"] < 0.7
    darker = models.Trained(predict, {}, lambda given: -given.mean(axis=(1, 2)))
    areas = uncertainty.foreign_scores(darker, split, None, 1)
    assert areas["AUROC of entropy, KMNIST"] == 1.0
    assert areas["AUROC of deviation, KMNIST"] == 0.0


def test_a_gp_doubts_what_it_has_not_seen():
    images, labels = load_digits(n_class=3, return_X_y=True)
    images = images.reshape(-1, 8, 8) / 16
    model = models.trained(GCGPClassifier(n_inducing=40).fit(images[:100], labels[:100]))
    noise = np.random.default_rng(0).random((50, 8, 8))
    assert model.deviation(images[100:150]).max() < model.deviation(noise).min()


def test_a_small_network_learns_digits(monkeypatch):
    monkeypatch.setattr(networks, "CHANNELS", (4, 8, 8))
    monkeypatch.setattr(networks, "USUAL", replace(networks.USUAL, steps=1))
    images, labels = load_digits(n_class=3, return_X_y=True)
    images = images.reshape(-1, 8, 8) / 16
    model = networks.convolutional_network(images[:400], labels[:400], None, 0)
    assert (model.predict(images[400:]).argmax(axis=1) == labels[400:]).mean() > 0.9


def test_one_command_makes_a_table(no_mnist, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["reproduce", "mnist", "--model", "rbf-gp", "--per-class", "20", "--inducing", "30"]
    assert main([*command, "--report", "results.md"]) == 0
    printed = capsys.readouterr()
    assert "run 1 of 1: rbf-gp | 20 a class | seed 0" in printed.err
    (run,) = json.loads((tmp_path / "results" / "mnist.json").read_text())["runs"].values()
    assert (run["train"], run["test"]) == (200, 1000)
    assert run["error"] < 0.35
    assert run["peak_memory_gb"] > 0.1
    assert f"{run['error']:.2%}" in printed.out
    assert f"{run['error']:.2%}" in (tmp_path / "results.md").read_text()
    assert main([*command[:-1], "31"]) == 1
    assert "choose another file with --json" in capsys.readouterr().err


def test_bad_numbers_are_told(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["reproduce", "mnist", "--seeds", "0"])
    assert "0 is not at least 1" in capsys.readouterr().err
