"""The Gaussian processes of the tables. Each is a function from training data to a function that predicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sklearn.base import clone
from sklearn.ensemble import VotingClassifier
from sklearn.pipeline import Pipeline, make_pipeline

from experiments.metrics import Scores
from experiments.sets import Split, held_out, on_one_vertex, some_of_each
from gcgp.descriptors.spectral import GeometryVectors, WaveKernelSignature
from gcgp.domain import Mesh
from gcgp.estimators.estimators import GCGPClassifier
from gcgp.weighting import Box, Polar, Radial

Predict = Callable[[Any], np.ndarray]
Note = dict[str, Any]
INDUCING = 750
"""As in the paper."""
CHOSEN_ON = 10_000
"""Training signals with which candidates are compared; as many again, at most, score them."""
CHOSEN_WITH = 1_000
"""Inducing patches of candidates while they are compared: more would take longer and change little."""
STRICT: dict[str, Any] = {"position": False, "bin_counts": False}
START = ([0.0, 1.0, 2.0], 8, 1.0)
"""The paper's radii, number of directions, and width."""


@dataclass(frozen=True)
class Trained:
    """A fitted model: what it predicts, and what is to be said of it."""

    predict: Predict
    """Class probabilities `[N, C]` of signals."""
    note: Note
    deviation: Predict | None = None
    """Of a GP: standard deviations `[N]` of the latent functions of the classes that it predicts."""


Fit = Callable[[Any, np.ndarray, int | None, int], Trained]
"""From signals, labels, the number of inducing patches (None: the model's own) and a seed."""


@dataclass(frozen=True)
class Tested:
    """A fitted model, what it was tested on, and what it said."""

    model: Trained
    split: Split
    probabilities: Float[np.ndarray, "N C"]
    truth: Int[np.ndarray, "N"]
    """Columns of the true classes."""
    folder: str | None
    """Of the data; see `Settings`."""
    seed: int


def trained(model: GCGPClassifier | Pipeline, **note: Any) -> Trained:
    """What the tables ask of a fitted classifier, or of a descriptor and a classifier."""
    before, last = (model[:-1].transform, model[-1]) if isinstance(model, Pipeline) else (None, model)

    def deviation(signals: Any) -> Float[np.ndarray, "N"]:
        given = signals if before is None else before(signals)
        mean, std = last.predict_latent(given, return_std=True)
        return np.asarray(std[np.arange(len(mean)), mean.argmax(axis=1)])

    found = {"inducing": last.features_.size, "softmax_weight": last.softmax_weight_}
    return Trained(model.predict_proba, found | note, deviation)


Options = dict[str, Any]
"""Of a classifier; on meshes also `descriptor`."""


def classifier(options: Options, inducing: int, seed: int) -> GCGPClassifier:
    """With so many inducing patches, which several scales share."""
    weighting = options.get("weighting")
    scales = len(weighting) if isinstance(weighting, list) else 1
    return GCGPClassifier(n_inducing=inducing // scales, random_state=seed, **options)


def described(options: Options, inducing: int, seed: int) -> Pipeline:
    """A descriptor of meshes, and the classifier with the other options."""
    rest = {name: value for name, value in options.items() if name != "descriptor"}
    return make_pipeline(clone(options["descriptor"]), classifier(rest, inducing, seed))


def conv_gp(train: Any, labels: np.ndarray, inducing: int | None, seed: int) -> Trained:
    """The convolutional GP of van der Wilk et al. (2017): square patches of 5 × 5 pixels."""
    model = GCGPClassifier(Box(5), n_inducing=inducing or INDUCING, random_state=seed, **STRICT)
    return trained(model.fit(train, labels))


def rbf_gp(train: Any, labels: np.ndarray, inducing: int | None, seed: int) -> Trained:
    """A GP with an RBF on all pixels of an image at once."""
    model = GCGPClassifier(Radial([0.0]), n_inducing=inducing or INDUCING, random_state=seed, **STRICT)
    model.fit(on_one_vertex(train), labels)
    return Trained(
        lambda images: model.predict_proba(on_one_vertex(images)), {"inducing": model.features_.size}
    )


def gcgp_images(**options: Any) -> Fit:
    """3 × 8 bins at radii that suit digits; the rest as these options say, or as by default."""

    def fit(train: Any, labels: np.ndarray, inducing: int | None, seed: int) -> Trained:
        model = classifier({"weighting": Polar([1.0, 3.0, 5.0], 8)} | options, inducing or INDUCING, seed)
        return trained(model.fit(train, labels))

    return fit


def gcgp(**options: Any) -> Fit:
    """The paper's model: 3 × 8 bins, nothing in a patch that says where it is, radii and width learned."""

    def fit(train: Any, labels: np.ndarray, inducing: int | None, seed: int) -> Trained:
        paper = {"weighting": Polar(*START), "learn": True}
        model = classifier(paper | STRICT | options, inducing or INDUCING, seed).fit(train, labels)
        found = model.features_.terms[0].convolution.weighting
        return trained(model, radii=found.radii.tolist(), radial_width=float(found.radial_width))

    return fit


def on_meshes(weighting: str) -> Fit:
    """Estimator defaults with this weighting, on the first four geometry vectors of meshes."""

    def fit(train: Sequence[Mesh], labels: np.ndarray, inducing: int | None, seed: int) -> Trained:
        options = {"descriptor": GeometryVectors(), "weighting": weighting}
        return trained(described(options, inducing or INDUCING, seed).fit(train, labels))

    return fit


def mean_of(candidates: dict[str, Options]) -> Fit:
    """All of them, on meshes, their probabilities averaged: of few meshes none can tell which is best."""

    def fit(train: Sequence[Mesh], labels: np.ndarray, inducing: int | None, seed: int) -> Trained:
        size = inducing or INDUCING
        each = [(name, described(options, size, seed)) for name, options in candidates.items()]
        model = VotingClassifier(each, voting="soft").fit(train, labels)
        return Trained(model.predict_proba, {"inducing": size, "averaged": list(candidates)})

    return fit


def best_of(candidates: dict[str, Options], most: Callable[[int], int]) -> Fit:
    """The candidate with the least NLL on training signals that were held out, fitted to all of them.

    It is the first one where a class has but one signal, so that none can be held out.
    `most` says how many inducing patches it then has, by the number of training signals.
    """

    def fit(train: Any, labels: np.ndarray, inducing: int | None, seed: int) -> Trained:
        losses: dict[str, float] = {}
        parts = to_choose(labels, seed)
        if parts is not None:
            fitted, scored = parts
            for name, options in candidates.items():
                model = classifier(options, min(inducing or CHOSEN_WITH, CHOSEN_WITH), seed)
                model.fit(train[fitted], labels[fitted])
                truth = np.searchsorted(model.classes_, labels[scored])
                losses[name] = Scores.of(model.predict_proba(train[scored]), truth).nll
        chosen = min(losses, key=lambda name: losses[name]) if losses else next(iter(candidates))
        model = classifier(candidates[chosen], inducing or most(len(labels)), seed).fit(train, labels)
        return trained(model, chosen=chosen, held_out_nll=losses)

    return fit


def to_choose(labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Training signals to fit candidates to and others to score them; None where none can be spared."""
    rows = some_of_each(labels, -(-2 * CHOSEN_ON // len(np.unique(labels))), seed)
    parts = held_out(labels[rows], 0.5 if len(rows) > CHOSEN_ON else 0.2, seed)
    return None if parts is None else (rows[parts[0]], rows[parts[1]])


def many(count: int) -> int:
    """Inducing patches that pay, by the number of training signals."""
    return min(4_000, max(750, count // 4))


def refined(**options: Any) -> Options:
    """These, and means that a softmax has moved."""
    return options | {"inference": "refined"}


LEARNED_ON_GRAPHS = gcgp(memory_limit="2 GB")
"""With the 500 MB of the defaults, what a step needs of most graphs would be computed twice."""
BEST_OF_IMAGES = best_of(
    {
        "radii 1, 2, 4, 6": refined(weighting=Polar([1.0, 2.0, 4.0, 6.0], 8)),
        "5 × 5 pixels": refined(weighting=Box(5)),
        "5 × 5 pixels, shorter lengthscales": refined(weighting=Box(5), lengthscale=1.0, position=4.0),
    },
    many,
)
BEST_OF_GRAPHS = best_of(
    {
        "defaults": refined(),
        "shorter lengthscale": refined(lengthscale=1.0),
        "two scales": refined(weighting=[Polar([1.0, 3.0, 5.0], 8), Polar([1.5, 4.5, 7.5, 10.5], 8, 2.2)]),
    },
    many,
)
MEAN_ON_MESHES = mean_of(
    {
        "4 geometry vectors": {"descriptor": GeometryVectors(), "weighting": "diffusion"},
        "8 geometry vectors": {"descriptor": GeometryVectors(8), "weighting": "diffusion"},
        "wave kernel signature": {"descriptor": WaveKernelSignature(), "weighting": "diffusion"},
    }
)
