"""The GP models of the tables. Each is a function from training data to a trained model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sklearn.base import clone
from sklearn.ensemble import VotingClassifier
from sklearn.pipeline import Pipeline, make_pipeline

from experiments.data import Split, draw_per_class, hold_out, on_one_vertex
from experiments.metrics import Scores
from gcgp import (
    Box,
    GCGPClassifier,
    GeometryVectors,
    Mesh,
    Patch,
    PatchKernel,
    Polar,
    Radial,
    Runtime,
    WaveKernelSignature,
    predict_latent,
)

Predict = Callable[[Any], np.ndarray]
N_INDUCING = 750
"""As in the paper."""
MAX_SELECTION_SIGNALS = 10_000
"""Training signals to which candidates are fitted; at most as many again score them."""
MAX_SELECTION_INDUCING = 1_000
"""Inducing patches of candidates during selection: more take longer and change little."""
CONV_INDUCING, RBF_INDUCING, RBF_LENGTHSCALE = 1_500, 2_000, 5.0
"""Of the baselines on MNIST, selected on held-out training images; see experiments/README.md."""
SIGNAL_ONLY = Patch(position=False, bin_counts=False)
"""As in the paper: a patch contains neither position nor bin counts."""
PAPER_POLAR = ([0.0, 1.0, 2.0], 8, 1.0)
"""Radii, number of angles and radial width at which the paper starts."""


@dataclass(frozen=True)
class TrainedModel:
    """A trained model."""

    predict: Predict
    """Class probabilities `[N, C]` of signals."""
    note: dict[str, Any]
    """Facts for the table, such as the number of inducing patches."""
    latent_std: Predict | None = None
    """For a GP: standard deviation `[N]` of the latent function of the predicted class."""


Fit = Callable[[Any, np.ndarray, int | None, int], TrainedModel]
"""From signals, labels, number of inducing patches (None: the default of the model) and seed."""


@dataclass(frozen=True)
class Evaluation:
    """A trained model with its test data and predictions."""

    model: TrainedModel
    split: Split
    probabilities: Float[np.ndarray, "N C"]
    truth: Int[np.ndarray, "N"]
    """Columns of the true classes."""
    folder: str | None
    """Data folder; see `Settings`."""
    seed: int


Options = dict[str, Any]
"""Arguments of `GCGPClassifier`; on meshes also `descriptor`."""


def as_trained(model: GCGPClassifier | Pipeline, **note: Any) -> TrainedModel:
    """The trained model of a fitted classifier, or of a pipeline of descriptor and classifier."""

    def latent_std(signals: Any) -> Float[np.ndarray, "N"]:
        mean, std = predict_latent(model, signals, return_std=True)
        return np.asarray(std[np.arange(len(mean)), mean.argmax(axis=1)])

    classifier = model[-1] if isinstance(model, Pipeline) else model
    facts = {"inducing": classifier.features_.size, "softmax_weight": classifier.softmax_weight_}
    return TrainedModel(model.predict_proba, facts | note, latent_std)


def build_classifier(options: Options, n_inducing: int, seed: int) -> GCGPClassifier:
    """A classifier whose scales share this number of inducing patches."""
    weighting = options.get("weighting")
    scales = len(weighting) if isinstance(weighting, list) else 1
    return GCGPClassifier(n_inducing=n_inducing // scales, search=None, random_state=seed, **options)


def build_pipeline(options: Options, n_inducing: int, seed: int) -> Pipeline:
    """A mesh descriptor, and the classifier with the other options."""
    others = {name: value for name, value in options.items() if name != "descriptor"}
    return make_pipeline(clone(options["descriptor"]), build_classifier(others, n_inducing, seed))


def single_model(n_inducing: int = N_INDUCING, **options: Any) -> Fit:
    """A classifier with these options, on images or graphs."""

    def fit(train: Any, labels: np.ndarray, inducing: int | None, seed: int) -> TrainedModel:
        return as_trained(build_classifier(options, inducing or n_inducing, seed).fit(train, labels))

    return fit


def fit_rbf_gp(train: Any, labels: np.ndarray, inducing: int | None, seed: int) -> TrainedModel:
    """A GP with an RBF kernel on all pixels of an image."""
    kernel = PatchKernel(lengthscale=RBF_LENGTHSCALE)
    options = refined(weighting=Radial([0.0]), patch=SIGNAL_ONLY, kernel=kernel)
    model = build_classifier(options, inducing or RBF_INDUCING, seed).fit(on_one_vertex(train), labels)
    note = {"inducing": model.features_.size}
    return TrainedModel(lambda images: model.predict_proba(on_one_vertex(images)), note)


def paper_model(**options: Any) -> Fit:
    """The paper's model: 3 × 8 bins of the signal alone, with learned radii and width."""
    options = {"weighting": Polar(*PAPER_POLAR), "patch": SIGNAL_ONLY, "learn": True} | options

    def fit(train: Any, labels: np.ndarray, inducing: int | None, seed: int) -> TrainedModel:
        model = build_classifier(options, inducing or N_INDUCING, seed).fit(train, labels)
        learned: Any = model.weightings_[0]
        return as_trained(model, radii=learned.radii.tolist(), radial_width=float(learned.radial_width))

    return fit


def mesh_model(weighting: str) -> Fit:
    """A classifier with this weighting and defaults otherwise, on four geometry vectors of meshes."""

    def fit(train: Sequence[Mesh], labels: np.ndarray, inducing: int | None, seed: int) -> TrainedModel:
        options = {"descriptor": GeometryVectors(), "weighting": weighting}
        return as_trained(build_pipeline(options, inducing or N_INDUCING, seed).fit(train, labels))

    return fit


def fit_defaults(train: Any, labels: np.ndarray, inducing: int | None, seed: int) -> TrainedModel:
    """gcgp without any options, on images, graphs or meshes."""
    return as_trained(GCGPClassifier(n_inducing=inducing or "auto", random_state=seed).fit(train, labels))


def layered_model(inference: str = "closed-form") -> Fit:
    """gcgp with hierarchical models among those that it compares, and defaults otherwise."""

    def fit(train: Any, labels: np.ndarray, inducing: int | None, seed: int) -> TrainedModel:
        size: Any = inducing or "auto"
        model = GCGPClassifier(layers="auto", inference=inference, n_inducing=size, random_state=seed)
        model.fit(train, labels)
        chains = [" → ".join(map(repr, term.convolution.layers)) for term in model.features_.terms]
        return as_trained(model, layers=[chain or "none" for chain in chains])

    return fit


def averaged_model(candidates: dict[str, Options]) -> Fit:
    """The mean of the probabilities of all candidates on meshes, which are too few to select one."""

    def fit(train: Sequence[Mesh], labels: np.ndarray, inducing: int | None, seed: int) -> TrainedModel:
        size = inducing or N_INDUCING
        pipelines = [(name, build_pipeline(options, size, seed)) for name, options in candidates.items()]
        model = VotingClassifier(pipelines, voting="soft").fit(train, labels)
        return TrainedModel(model.predict_proba, {"inducing": size, "averaged": list(candidates)})

    return fit


def selected_model(candidates: dict[str, Options], n_inducing: Callable[[int], int]) -> Fit:
    """The candidate with the lowest NLL on held-out training signals, fitted to all training signals.

    It is the first candidate if a class has only one signal, so that none can be held out. `n_inducing` maps
    the number of training signals to the number of inducing patches of the final fit.
    """

    def fit(train: Any, labels: np.ndarray, inducing: int | None, seed: int) -> TrainedModel:
        losses: dict[str, float] = {}
        parts = selection_split(labels, seed)
        if parts is not None:
            fitted, scored = parts
            size = min(inducing or MAX_SELECTION_INDUCING, MAX_SELECTION_INDUCING)
            for name, options in candidates.items():
                model = build_classifier(options, size, seed).fit(train[fitted], labels[fitted])
                truth = np.searchsorted(model.classes_, labels[scored])
                losses[name] = Scores.of(model.predict_proba(train[scored]), truth).nll
        chosen = min(losses, key=lambda name: losses[name]) if losses else next(iter(candidates))
        size = inducing or n_inducing(len(labels))
        model = build_classifier(candidates[chosen], size, seed).fit(train, labels)
        return as_trained(model, chosen=chosen, held_out_nll=losses)

    return fit


def selection_split(
    labels: np.ndarray, seed: int
) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "m"]] | None:
    """Training signals to fit candidates to, and others to score them; None if none can be held out."""
    per_class = -(-2 * MAX_SELECTION_SIGNALS // len(np.unique(labels)))
    rows = np.sort(draw_per_class(labels, per_class, seed))
    parts = hold_out(labels[rows], 0.5 if len(rows) > MAX_SELECTION_SIGNALS else 0.2, seed)
    return None if parts is None else (rows[parts[0]], rows[parts[1]])


def n_inducing_for(count: int) -> int:
    """Inducing patches that improve the result, by the number of training signals."""
    return min(4_000, max(750, count // 4))


def refined(**options: Any) -> Options:
    """These options with refined means."""
    return options | {"inference": "refined"}


fit_conv_gp = single_model(CONV_INDUCING, **refined(weighting=Box(5), patch=SIGNAL_ONLY))
"""The convolutional GP of van der Wilk et al. (2017): square patches of 5 × 5 pixels."""
PAPER_ON_GRAPHS = paper_model(runtime=Runtime(memory_limit="2 GB"))
"""With the default of 500 MB, features of most graphs would be recomputed in each step."""
BEST_ON_IMAGES = selected_model(
    {
        "radii 1, 2, 4, 6": refined(weighting=Polar([1.0, 2.0, 4.0, 6.0], 8)),
        "5 × 5 pixels": refined(weighting=Box(5)),
        "5 × 5 pixels, shorter lengthscales": refined(
            weighting=Box(5), kernel=PatchKernel(lengthscale=1.0), patch=Patch(position=4.0)
        ),
    },
    n_inducing_for,
)
BEST_ON_GRAPHS = selected_model(
    {
        "defaults": refined(),
        "shorter lengthscale": refined(kernel=PatchKernel(lengthscale=1.0)),
        "two scales": refined(weighting=[Polar([1.0, 3.0, 5.0], 8), Polar([1.5, 4.5, 7.5, 10.5], 8, 2.2)]),
    },
    n_inducing_for,
)
BEST_ON_MESHES = averaged_model(
    {
        "4 geometry vectors": {"descriptor": GeometryVectors(), "weighting": "radial"},
        "8 geometry vectors": {"descriptor": GeometryVectors(8), "weighting": "radial"},
        "wave kernel signature": {"descriptor": WaveKernelSignature(), "weighting": "radial"},
    }
)
