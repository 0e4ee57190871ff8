"""The tables: which models on which data, with the errors that the paper reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from experiments import few_labels, graph_datasets, models
from experiments.data import Split, digits, persons
from experiments.image_networks import few_label_network, fit_image_network
from experiments.metrics import Scores, calibration, peak_memory
from experiments.models import Evaluation, Fit
from experiments.networks import fit_mesh_network, graph_network
from experiments.runs import Run, Settings
from experiments.shape_baselines import logistic_regression, pooled_signatures, shape_dna
from experiments.superpixel_folder import published_superpixels
from experiments.uncertainty import uncertainty_metrics
from gcgp import Polar

ALL_DATA = "all"
ABLATION_SIZES = (100, 500, 1000)
MESH_SIZES = (500, 1000, 2500)
TRAINING_POSES = 7
SIMILAR_PERSONS = (4, 8)
"""The persons of FAUST that the paper reports as confused, by FAUST's numbering."""


@dataclass(frozen=True)
class Row:
    """One model of a table."""

    title: str
    fit: Fit
    paper: dict[str, float] = field(default_factory=dict)
    """The paper's error by condition."""
    differs: str = ""
    """Difference from the paper's model, or from the model that the authors of a baseline published."""
    applies: Callable[[str], bool] = lambda condition: True
    """Whether the model can be fitted in a condition, such as one of meshes."""


@dataclass(frozen=True)
class Table:
    """The definition of a table."""

    title: str
    rows: dict[str, Row]
    """By the names that the command line uses."""
    seeds: int
    conditions: Callable[[Settings], Sequence[str]]
    split: Callable[[Run], Split]
    extra_metrics: Callable[[Evaluation], dict[str, float]] = lambda evaluation: {}

    def runs(self, name: str, chosen: Sequence[str], seeds: int | None, settings: Settings) -> list[Run]:
        """All runs of the chosen models, or of all models."""
        for model in chosen:
            if model not in self.rows:
                raise ValueError(
                    f"model {model!r} is not in this table; expected one of {', '.join(self.rows)}"
                )
        runs = [
            Run(name, model, condition, seed, settings)
            for condition in self.conditions(settings)
            for model in chosen or self.rows
            if self.rows[model].applies(condition)
            for seed in range(seeds or self.seeds)
        ]
        if not runs:
            raise ValueError(f"no data for the model {', '.join(chosen)}")
        return runs


def evaluate(run: Run) -> dict[str, Any]:
    """Fit and test one model: scores, seconds, peak memory, and differences from the paper's data."""
    table = TABLES[run.table]
    started = time.perf_counter()
    split = table.split(run)
    loaded = time.perf_counter()
    model = table.rows[run.model].fit(split.train, split.labels, run.settings.inducing, run.seed)
    fitted = time.perf_counter()
    probabilities = model.predict(split.test)
    predicted = time.perf_counter()
    truth = np.searchsorted(np.unique(split.labels), split.truth)
    evaluation = Evaluation(model, split, probabilities, truth, run.settings.data, run.seed)
    return {
        **asdict(Scores.of(probabilities, truth)),
        "calibration": [part.round(4).tolist() for part in calibration(probabilities, truth)],
        "seconds_data": loaded - started,
        "seconds_fit": fitted - loaded,
        "seconds_predict": predicted - fitted,
        "peak_memory_gb": peak_memory(),
        "train": len(split.labels),
        "test": len(split.truth),
        "differs": list(split.differs),
        "note": model.note,
        "more": table.extra_metrics(evaluation),
    }


def _sizes(*sizes: int) -> Callable[[Settings], list[str]]:
    """Conditions: numbers of training signals per class, or all of them; or the number that the user gave."""

    def conditions(settings: Settings) -> list[str]:
        chosen = [settings.per_class] if settings.per_class is not None else sizes
        return [_size(number) for number in chosen] or [ALL_DATA]

    return conditions


def _size(per_class: int) -> str:
    return f"{per_class} per class"


def _resolutions(settings: Settings) -> list[str]:
    sizes = MESH_SIZES if settings.vertices is None else (settings.vertices,)
    return [_resolution(size, settings.per_class or TRAINING_POSES) for size in sizes]


def _resolution(vertices: int, poses: int) -> str:
    return f"{vertices} vertices, {poses} pose{'s' if poses > 1 else ''}"


def _per_class(run: Run) -> int | None:
    return None if run.condition == ALL_DATA else int(run.condition.split()[0])


def _images(run: Run) -> Split:
    return digits(run.settings, _per_class(run), run.seed)


def _graphs(run: Run) -> Split:
    if run.settings.graphs is not None:
        return published_superpixels(run.settings.graphs, _per_class(run), run.seed)
    return _images(run).as_graphs(run.seed)


def _meshes(run: Run) -> Split:
    vertices, poses = (int(part.split()[0]) for part in run.condition.split(", "))
    return persons(run.settings, vertices, poses, run.seed)


def confusion_of_similar_persons(evaluation: Evaluation) -> dict[str, float]:
    """How often each of two similar persons is predicted as the other, or most resembles the other."""
    ranked, shares = np.argsort(-evaluation.probabilities, axis=1), {}
    for person, other in (SIMILAR_PERSONS, SIMILAR_PERSONS[::-1]):
        first, second = ranked[evaluation.truth == person, :2].T
        shares[f"{person} predicted as {other}"] = float((first == other).mean())
        next_most_probable = np.where(first == person, second, first)
        shares[f"{person} most similar to {other}"] = float((next_most_probable == other).mean())
    return shares


def _ablation_errors(*errors: float) -> dict[str, float]:
    return {_size(size): error for size, error in zip(ABLATION_SIZES, errors, strict=True)}


def _mesh_errors(*errors: float) -> dict[str, float]:
    return {_resolution(size, TRAINING_POSES): error for size, error in zip(MESH_SIZES, errors, strict=True)}


CLOSED_FORM = "closed form instead of Adam on a variational bound"
REFINED = "refined closed form instead of Adam on a variational bound"
CONV_DIFFERS = (
    f"{REFINED}; {models.CONV_INDUCING:,} inducing patches of training images instead of 750 learned ones, "
    "a number selected on held-out training images"
)
RBF_DIFFERS = (
    f"{REFINED}; {models.RBF_INDUCING:,} training images as inducing inputs instead of 750 learned ones; "
    "their number and the lengthscale were selected on held-out training images"
)
ONE_CYCLE = "trained here with one cycle of learning rates of Adam"
FEW_EPOCHS = f"{ONE_CYCLE}, for far fewer epochs than published"
TUNED_ON_OTHER_SPLITS = (
    f"{ONE_CYCLE}; its training was tuned on held-out training poses of two further splits, "
    "which include test meshes of some of these splits"
)
DIGIT_POLAR = Polar([1.0, 3.0, 5.0], 8)
TABLES = {
    "mnist": Table(
        "MNIST",
        {
            "conv-gp": Row("Conv GP, 5 × 5 pixels", models.fit_conv_gp, {ALL_DATA: 0.021}, CONV_DIFFERS),
            "rbf-gp": Row("RBF GP, 784 inputs", models.fit_rbf_gp, {ALL_DATA: 0.019}, RBF_DIFFERS),
            "gcgp": Row("GCGP, 3 × 8 bins", models.paper_model(), {ALL_DATA: 0.017}, CLOSED_FORM),
            "gcgp-quick": Row(
                "GCGP, 3 × 8 bins, fixed radii 1, 3, 5",
                models.single_model(weighting=DIGIT_POLAR, patch=models.SIGNAL_ONLY),
                {ALL_DATA: 0.017},
                f"{CLOSED_FORM}; radii and width not learned",
            ),
            "gcgp-best": Row("GCGP, best, refined means", models.BEST_ON_IMAGES),
            "gcgp-layers": Row("GCGP, layers, refined means", models.layered_model("refined")),
        },
        1,
        _sizes(),
        _images,
    ),
    "superpixels": Table(
        "MNIST as superpixel graphs",
        {
            "chebnet": Row("ChebNet", graph_network("chebnet"), {ALL_DATA: 0.244}, FEW_EPOCHS),
            "monet": Row("MoNet", graph_network("monet"), {ALL_DATA: 0.089}, FEW_EPOCHS),
            "gcgp": Row("GCGP, 3 × 8 bins", models.PAPER_ON_GRAPHS, {ALL_DATA: 0.042}, CLOSED_FORM),
            "gcgp-best": Row("GCGP, best, refined means", models.BEST_ON_GRAPHS),
            "gcgp-layers": Row("GCGP, layers, refined means", models.layered_model("refined")),
        },
        1,
        _sizes(),
        _graphs,
    ),
    "ablation": Table(
        "Superpixel graphs, few training digits",
        {
            "monet": Row("MoNet", graph_network("monet"), {}, FEW_EPOCHS),
            "gcgp": Row(
                "GCGP, 3 × 8 bins",
                models.PAPER_ON_GRAPHS,
                _ablation_errors(0.137, 0.083, 0.063),
                CLOSED_FORM,
            ),
            "gcgp-best": Row("GCGP, best, refined means", models.BEST_ON_GRAPHS),
            "gcgp-layers": Row("GCGP, layers, refined means", models.layered_model("refined")),
        },
        5,
        _sizes(*ABLATION_SIZES),
        _graphs,
    ),
    "faust": Table(
        "FAUST: identification of persons",
        {
            "monet": Row("MoNet", fit_mesh_network, _mesh_errors(0.4, 0.333, 0.333), TUNED_ON_OTHER_SPLITS),
            "gcgp": Row(
                "GCGP, 16 × 5 bins",
                models.mesh_model("polar"),
                _mesh_errors(0.233, 0.1, 0.033),
                CLOSED_FORM,
            ),
            "gcgp-radial": Row("GCGP, 5 radial bins", models.mesh_model("radial")),
            "gcgp-best": Row("GCGP, best, mean of three descriptors", models.BEST_ON_MESHES),
        },
        30,
        _resolutions,
        _meshes,
        confusion_of_similar_persons,
    ),
    "uncertainty": Table(
        "Uncertainty on MNIST images",
        {
            "gcgp": Row("GCGP, closed form", models.single_model(weighting=DIGIT_POLAR)),
            "gcgp-variational": Row(
                "GCGP, natural gradient",
                models.single_model(weighting=DIGIT_POLAR, inference="natural-gradient"),
            ),
            "cnn": Row("small CNN", fit_image_network, {}, ONE_CYCLE),
        },
        1,
        _sizes(),
        _images,
        uncertainty_metrics,
    ),
    "few-labels": Table(
        "Few labels",
        {
            "gcgp": Row("GCGP, defaults", models.fit_defaults),
            "gcgp-layers": Row('GCGP, layers="auto"', models.layered_model()),
            "cnn": Row("small CNN", few_label_network(shifted=False), applies=few_labels.is_image_condition),
            "cnn-shifted": Row(
                "small CNN, shifted images",
                few_label_network(shifted=True),
                applies=few_labels.is_image_condition,
            ),
            "shape-dna": Row(
                "ShapeDNA, logistic regression",
                logistic_regression(shape_dna),
                applies=few_labels.is_mesh_condition,
            ),
            "signatures": Row(
                "pooled signatures, logistic regression",
                logistic_regression(pooled_signatures),
                applies=few_labels.is_mesh_condition,
            ),
        },
        5,
        few_labels.conditions,
        few_labels.split,
    ),
    "graphs": Table(
        "Classification of graphs",
        {
            "gcgp": Row("GCGP, defaults", models.fit_defaults),
            "gcgp-layers": Row('GCGP, layers="auto"', models.layered_model()),
        },
        graph_datasets.FOLDS,
        graph_datasets.conditions,
        graph_datasets.split,
    ),
}
