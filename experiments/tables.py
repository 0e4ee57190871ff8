"""The tables: which models, on which data, with which figures of the paper beside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from experiments import models
from experiments.metrics import Scores, calibration, peak_memory
from experiments.models import Fit, Tested
from experiments.networks import convolutional_network, mesh_network, network
from experiments.runs import Run, Settings
from experiments.sets import Split, digits, persons
from experiments.uncertainty import worth

ALL = "all"
ABLATION = (100, 500, 1000)
VERTICES = (500, 1000, 2500)
POSES = 7
ALIKE = (4, 8)
"""The persons of FAUST that the paper finds confused, in FAUST's own numbers."""


@dataclass(frozen=True)
class Row:
    """One model of a table."""

    title: str
    fit: Fit
    paper: dict[str, float] = field(default_factory=dict)
    """The paper's error in each condition."""
    differs: str = ""
    """From the paper's model, or from its authors' own."""


@dataclass(frozen=True)
class Table:
    """What a table of the paper is made of."""

    title: str
    rows: dict[str, Row]
    """By the names that the command line knows them by."""
    seeds: int
    conditions: Callable[[Settings], Sequence[str]]
    split: Callable[[Run], Split]
    more: Callable[[Tested], dict[str, float]] = lambda tested: {}
    """Further figures."""

    def runs(self, name: str, chosen: Sequence[str], seeds: int | None, settings: Settings) -> list[Run]:
        """All runs of the chosen models, or of all."""
        for model in chosen:
            if model not in self.rows:
                raise ValueError(f"model {model!r} is not in this table; it has {', '.join(self.rows)}")
        return [
            Run(name, model, condition, seed, settings)
            for condition in self.conditions(settings)
            for model in chosen or self.rows
            for seed in range(seeds or self.seeds)
        ]


def carry_out_one(run: Run) -> dict[str, Any]:
    """Fit one model and test it: scores, seconds, peak of memory, and how data differ from the paper's."""
    begun = time.perf_counter()
    row, split = TABLES[run.table].rows[run.model], TABLES[run.table].split(run)
    start = time.perf_counter()
    model = row.fit(split.train, split.labels, run.settings.inducing, run.seed)
    fitted = time.perf_counter()
    probabilities = model.predict(split.test)
    seconds = time.perf_counter() - fitted
    truth = np.searchsorted(np.unique(split.labels), split.truth)
    tested = Tested(model, split, probabilities, truth, run.settings.data, run.seed)
    return {
        **asdict(Scores.of(probabilities, truth)),
        "calibration": [part.round(4).tolist() for part in calibration(probabilities, truth)],
        "seconds_data": start - begun,
        "seconds_fit": fitted - start,
        "seconds_predict": seconds,
        "peak_memory_gb": peak_memory(),
        "train": len(split.labels),
        "test": len(split.truth),
        "differs": list(split.differs),
        "note": model.note,
        "more": TABLES[run.table].more(tested),
    }


def _per_class(condition: str) -> int | None:
    return None if condition == ALL else int(condition.split()[0])


def _sizes(*sizes: int) -> Callable[[Settings], list[str]]:
    """The conditions: so many of each class, or all; or what the user asks for."""

    def conditions(settings: Settings) -> list[str]:
        asked = [settings.per_class] if settings.per_class is not None else list(sizes)
        return [f"{size} a class" for size in asked] or [ALL]

    return conditions


def _images(run: Run) -> Split:
    return digits(run.settings, _per_class(run.condition), run.seed)


def _graphs(run: Run) -> Split:
    return _images(run).as_graphs(run.seed)


def _resolutions(settings: Settings) -> list[str]:
    sizes = VERTICES if settings.vertices is None else (settings.vertices,)
    return [_resolution(size, settings.per_class or POSES) for size in sizes]


def _resolution(vertices: int, poses: int) -> str:
    return f"{vertices} vertices, {poses} pose{'s' if poses > 1 else ''}"


def _meshes(run: Run) -> Split:
    vertices, poses = (int(part.split()[0]) for part in run.condition.split(", "))
    return persons(run.settings, vertices, poses, run.seed)


def confused(tested: Tested) -> dict[str, float]:
    """How often each of two persons who look alike is taken for the other, and how often that one is next."""
    ranked, found = np.argsort(-tested.probabilities, axis=1), {}
    for one, other in (ALIKE, ALIKE[::-1]):
        first, second = ranked[tested.truth == one, :2].T
        found[f"{one} taken for {other}"] = float((first == other).mean())
        found[f"{one} most like {other}"] = float(
            np.where(first == one, second == other, first == other).mean()
        )
    return found


def _ablated(*errors: float) -> dict[str, float]:
    return {f"{size} a class": error for size, error in zip(ABLATION, errors, strict=True)}


def _by_vertices(*errors: float) -> dict[str, float]:
    return {_resolution(size, POSES): error for size, error in zip(VERTICES, errors, strict=True)}


CLOSED = "closed form instead of Adam on a variational bound"
TRAINED_HERE = "trained here by one cycle of Adam's steps"
FEWER_PASSES = f"{TRAINED_HERE}, far fewer passes than published ones"
OTHER_SPLITS = (
    f"{TRAINED_HERE}; how was chosen by training poses held out in two further splits, "
    "whose meshes are test meshes of some of these"
)
TABLES = {
    "mnist": Table(
        "MNIST",
        {
            "conv-gp": Row("Conv GP, 5 × 5 pixels", models.conv_gp, {}, CLOSED),
            "rbf-gp": Row("RBF GP, 784 inputs", models.rbf_gp, {}, CLOSED),
            "gcgp": Row("GCGP, 3 × 8 bins", models.gcgp(), {ALL: 0.017}, CLOSED),
            "gcgp-quick": Row(
                "GCGP, 3 × 8 bins, radii 1, 3, 5 given",
                models.gcgp_images(**models.STRICT),
                {ALL: 0.017},
                f"{CLOSED}; radii and width not learned",
            ),
            "gcgp-best": Row("GCGP, best, means refined", models.BEST_OF_IMAGES),
        },
        1,
        _sizes(),
        _images,
    ),
    "superpixels": Table(
        "MNIST as superpixel graphs",
        {
            "chebnet": Row("ChebNet", network("chebnet"), {}, FEWER_PASSES),
            "monet": Row("MoNet", network("monet"), {}, FEWER_PASSES),
            "gcgp": Row("GCGP, 3 × 8 bins", models.LEARNED_ON_GRAPHS, {ALL: 0.042}, CLOSED),
            "gcgp-best": Row("GCGP, best, means refined", models.BEST_OF_GRAPHS),
        },
        1,
        _sizes(),
        _graphs,
    ),
    "ablation": Table(
        "Superpixel graphs, few training digits",
        {
            "monet": Row("MoNet", network("monet"), {}, FEWER_PASSES),
            "gcgp": Row("GCGP, 3 × 8 bins", models.LEARNED_ON_GRAPHS, _ablated(0.137, 0.083, 0.063), CLOSED),
            "gcgp-best": Row("GCGP, best, means refined", models.BEST_OF_GRAPHS),
        },
        5,
        _sizes(*ABLATION),
        _graphs,
    ),
    "faust": Table(
        "FAUST: who is it?",
        {
            "monet": Row("MoNet", mesh_network, {}, OTHER_SPLITS),
            "gcgp": Row(
                "GCGP, 16 × 5 bins", models.on_meshes("polar"), _by_vertices(0.233, 0.1, 0.033), CLOSED
            ),
            "gcgp-radial": Row("GCGP, 5 radial bins", models.on_meshes("diffusion")),
            "gcgp-best": Row("GCGP, best, mean of three descriptors", models.MEAN_ON_MESHES),
        },
        30,
        _resolutions,
        _meshes,
        confused,
    ),
    "uncertainty": Table(
        "What probabilities are worth: images of MNIST",
        {
            "gcgp": Row("GCGP, closed form", models.gcgp_images()),
            "gcgp-variational": Row("GCGP, variational", models.gcgp_images(inference="variational")),
            "cnn": Row("small CNN", convolutional_network, {}, TRAINED_HERE),
        },
        1,
        _sizes(),
        _images,
        worth,
    ),
}
