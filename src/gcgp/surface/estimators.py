"""scikit-learn estimators: a graph convolutional GP as classifier and as regressor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from tqdm import tqdm

from gcgp.domain import Grids, Signals
from gcgp.domain.chart import unknown_option
from gcgp.inference import (
    DirichletClassification,
    Features,
    GaussianRegression,
    Posterior,
    Statistics,
    Term,
)
from gcgp.inference.dirichlet import COARSE_STEPS, FINE_STEPS, START
from gcgp.inference.features import Chunk
from gcgp.inference.selection import Choice, Point, Sample, pattern_search
from gcgp.inference.softmax import expected_softmax, normal_draws
from gcgp.kernel.base import NAMES as KERNELS
from gcgp.kernel.convolutional import AGGREGATES
from gcgp.kernel.inducing import METHODS
from gcgp.patches import Convolution
from gcgp.patches.convolution import runs
from gcgp.surface.assembly import Draft, resolve_weightings
from gcgp.surface.inputs import as_bytes, as_signals, as_targets, encode_labels, labels_of

DTYPES = {"float32": torch.float32, "float64": torch.float64}
TRIAL_SIGNALS = 1_000
"""Training signals on which lengthscales, variance and α_ε are tried."""
SCORED_SIGNALS = 500
"""How many of these are left out in turn to score a choice."""
TRIAL_INDUCING = 300
TRIAL_DRAWS = 128
DIAGONAL_DRAWS = 128
"""Patches of a training signal that are drawn for its prior variance; with fewer patches, all count."""
FIRST_MULTIPLIER = -1.0
"""log2 of the lengthscale over the median distance of patches, where the search for it starts."""
LOCATION_MUST_GAIN = 0.01
"""A location is kept if it lowers the loss by this much (in nats a signal)."""


@dataclass(frozen=True)
class VertexEvidence:
    """What each vertex says for each class (or for the regression function).

    Rows are the vertices of all signals, one signal after the other. `mean` and `std` are those of the vertex's
    own share of the latent function: of g at its patch for `aggregate="sum"`, of g over the number of
    patches for `"mean"`. The means of a signal's vertices sum to its latent mean.
    """

    mean: Float[np.ndarray, "total_vertices C"]
    std: Float[np.ndarray, "total_vertices C"]
    offsets: Int[np.ndarray, "signals_plus_1"]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, signal: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation `[V, C]` of one signal's vertices."""
        number = range(len(self))[signal]
        rows = slice(self.offsets[number], self.offsets[number + 1])
        return self.mean[rows], self.std[rows]


class _ConvolutionalGP(BaseEstimator):
    """What classifier and regressor share: building the terms, collecting statistics, predicting."""

    weighting: Any
    chart: str
    location: bool | float | str
    mass: bool | str
    kernel: str | Kernel
    lengthscale: float | str
    aggregate: str
    vertex_weights: Any
    n_inducing: int
    inducing: str
    variance: float | str
    dtype: str
    memory_limit: int | str
    random_state: Any
    progress: bool

    features_: Features
    posterior_: Posterior

    def predict_latent(
        self, X: Any, return_std: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Posterior mean `[N, C]` of the latent functions and, if asked for, their standard deviation."""
        mean, variance = self._latent(self._input(X), diagonal=return_std)
        return (mean.numpy(), variance.sqrt().numpy()) if return_std else mean.numpy()

    def evidence(self, X: Any) -> VertexEvidence:
        """What every vertex contributes to every latent function, with its standard deviation.

        The means of a signal's vertices sum to its latent mean.
        """
        signals = self._input(X)
        means, deviations = [], []
        cost = signals.vertex_counts * self.features_.size * 8.0 * 4
        for run in runs(cost, as_bytes(self.memory_limit)):
            features, residual = self.features_.at_vertices(signals[run])
            mean, variance = self.posterior_.predict(features, residual)
            means.append(mean.numpy())
            deviations.append(variance.sqrt().numpy())
        return VertexEvidence(np.concatenate(means), np.concatenate(deviations), signals.offsets)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file; `gcgp.load` reads it. An existing file is replaced whole."""
        from gcgp.surface.model_file import save

        check_is_fitted(self, "posterior_")
        save(self, path)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

    def _choose(
        self, statistics: Statistics, sample: Sample, start: Point, steps: Sequence[Point]
    ) -> Choice[Any]:
        """The likelihood and GP variance that fit best."""
        raise NotImplementedError

    def _validate_options(self) -> None:
        for name, value, known in (
            ("aggregate", self.aggregate, AGGREGATES),
            ("inducing", self.inducing, METHODS),
            ("dtype", self.dtype, tuple(DTYPES)),
        ):
            if value not in known:
                raise unknown_option(name, value, known)
        if not isinstance(self.kernel, Kernel) and self.kernel not in KERNELS:
            raise unknown_option("kernel", self.kernel, (*KERNELS, "any gpytorch.kernels.Kernel"))
        if isinstance(self.n_inducing, bool) or not isinstance(self.n_inducing, (int, np.integer)) or self.n_inducing < 1:
            raise ValueError(f"n_inducing={self.n_inducing!r} must be a whole number of at least 1")
        for name in ("lengthscale", "variance"):
            check_positive(name, getattr(self, name))
        if not isinstance(self.location, (bool, np.bool_)):
            check_positive("location", self.location)
        if self.mass not in (True, False, "auto"):
            raise unknown_option("mass", self.mass, ("auto", "True", "False"))
        as_bytes(self.memory_limit)

    def _input(self, X: Any) -> Signals:
        """Signals to predict, checked against those of training."""
        check_is_fitted(self, "posterior_")
        signals = as_signals(X)
        if type(signals.domains).__name__ != self.domain_:
            raise ValueError(
                f"X: signals on {type(signals.domains).__name__.lower()}, "
                f"but training had {self.domain_.lower()}"
            )
        if signals.channels != self.channels_:
            raise ValueError(f"X: {signals.channels} channels, but training had {self.channels_}")
        if self.image_shape_ is not None and isinstance(signals.domains, Grids):
            wrong = np.flatnonzero((signals.domains.shapes != self.image_shape_).any(axis=1))
            if len(wrong):
                n = int(np.argmax(signals.domain_of == wrong[0]))
                raise ValueError(
                    f"X: image {n} has shape {signals.domains.shapes[wrong[0]].tolist()}, but training had "
                    f"{list(self.image_shape_)}, which matters with location or vertex_weights"
                )
        return signals

    def _fit(
        self, signals: Signals, groups: Int[np.ndarray, "N"], targets: Float[np.ndarray, "N"]
    ) -> Choice[Any]:
        """Build the terms, collect the statistics of all signals, and choose likelihood and variance."""
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31, size=4))
        memory = as_bytes(self.memory_limit)
        labels, t = torch.from_numpy(groups), torch.from_numpy(targets)
        with self._bar(len(signals)) as bar:
            bar.set_description("lengthscales")
            trial = np.sort(rng.permutation(len(signals))[: self._trial_size(signals, memory)])
            drafts = self._drafts(signals[trial], rng)
            drafts, scales, start = self._tuned(drafts, labels[trial], t[trial], rng)
            terms = [
                draft.term(scale, int(self.n_inducing), self.inducing, rng)
                for draft, scale in zip(drafts, scales, strict=True)
            ]
            features = Features(terms, memory)
            bar.set_description("features")
            statistics = Statistics.empty(int(labels.max()) + 1, features.size)
            seed = int(rng.integers(2**31))
            for chunk in features.chunks(signals, draws=DIAGONAL_DRAWS, seed=seed, progress=bar.update):
                statistics.add(chunk.features, labels[chunk.run], t[chunk.run], chunk.residual)
            bar.set_description("variance")
            whole = features.of_patches([draft.trial for draft in drafts], slice(0, len(trial)))
            choice = self._choose(statistics, _sample(whole, labels[trial]), start, FINE_STEPS)
            self.features_ = features
            self.posterior_ = choice.likelihood.posterior(statistics, choice.variance)
            self.variance_ = choice.variance
            self.bound_ = choice.likelihood.bound(statistics, choice.variance)
        self.domain_ = type(signals.domains).__name__
        self.channels_ = signals.channels
        fixed = self.vertex_weights is not None or terms[0].convolution.location
        shapes = signals.domains.shapes if isinstance(signals.domains, Grids) else ()
        self.image_shape_ = tuple(map(int, shapes[0])) if fixed and len(shapes) == 1 else None
        return choice

    def _trial_size(self, signals: Signals, memory: int) -> int:
        weightings = resolve_weightings(self.weighting, signals)
        width = sum(w.bins * (signals.channels + 1) + 3 for w in weightings) * DTYPES[self.dtype].itemsize
        return max(2, min(TRIAL_SIGNALS, int(memory / (width * signals.vertex_counts.mean() * 4))))

    def _drafts(self, trial: Signals, rng: np.random.Generator) -> list[Draft]:
        """One draft for each weighting, with location and mass as asked for."""
        coordinates = trial.domains.locations is not None
        tunable = isinstance(self.kernel, str)
        location = (coordinates and tunable) if self.location == "auto" else bool(self.location)
        mass = (not coordinates and tunable) if self.mass == "auto" else bool(self.mass)
        dtype = DTYPES[self.dtype]
        weights = self.vertex_weights
        if weights is not None:
            weights = torch.as_tensor(np.asarray(weights), dtype=dtype).reshape(-1)
            if not torch.isfinite(weights).all():
                place = int(torch.argmin(torch.isfinite(weights).int()))
                raise ValueError(f"vertex_weights[{place}] is {float(weights[place])}; it must be finite")
        return [
            Draft.make(
                Convolution(weighting.to(dtype).requires_grad_(False), self.chart, mass, location, dtype),
                trial,
                self.kernel,
                self.aggregate,
                weights,
                rng,
            )
            for weighting in resolve_weightings(self.weighting, trial)
        ]

    def _tuned(
        self,
        drafts: list[Draft],
        labels: Int[Tensor, "n"],
        targets: Float[Tensor, "n"],
        rng: np.random.Generator,
    ) -> tuple[list[Draft], list[dict[str, float]], Point]:
        """Lengthscales, and whether the location counts: those with the least loss on the trial signals."""
        inducing = min(int(self.n_inducing), TRIAL_INDUCING)
        seed = int(rng.integers(2**31))
        starts: list[Point] = [START]

        def scales(point: Point, drafts: list[Draft]) -> list[dict[str, float]]:
            located = None if len(point) == 1 else 2 ** point[1]
            every = [draft.lengthscales(2 ** point[0], located) for draft in drafts]
            for scale in every:
                if self.lengthscale != "auto":
                    scale["bins"] = float(self.lengthscale)
                if not isinstance(self.location, (bool, str)) and "location" in scale:
                    scale["location"] = float(self.location)
            return every

        def loss(point: Point, drafts: list[Draft]) -> float:
            fresh = np.random.default_rng(seed)
            terms = [
                draft.term(scale, inducing, "random" if self.inducing == "random" else "k-means++", fresh)
                for draft, scale in zip(drafts, scales(point, drafts), strict=True)
            ]
            chunk = Features(terms, 0).of_patches([draft.trial for draft in drafts], slice(0, len(labels)))
            statistics = Statistics.empty(int(labels.max()) + 1, chunk.features.shape[1])
            statistics.add(chunk.features, labels, targets, chunk.residual)
            choice = self._choose(statistics, _sample(chunk, labels), starts[0], COARSE_STEPS)
            starts[0] = choice.at or START
            return choice.loss

        with_location = "location" in drafts[0].columns
        tune_bins = isinstance(self.kernel, str) and self.lengthscale == "auto"
        tune_location = isinstance(self.kernel, str) and isinstance(self.location, (str, bool)) and with_location
        plain = [draft.without_location() for draft in drafts]
        if not with_location or self.location == "auto":
            steps = [(0.5,)] if tune_bins else []
            best, least = pattern_search(lambda p: loss(p, plain), (FIRST_MULTIPLIER,), steps)
            if not with_location:
                return plain, scales(best, plain), starts[0]
        else:
            best, least = (FIRST_MULTIPLIER,), float("inf")
        plain_start = starts[0]
        step = (0.5 if tune_bins else 0.0, 1.0 if tune_location else 0.0)
        located, lower = pattern_search(
            lambda p: loss(p, drafts), (best[0], 0.0), [step] if any(step) else []
        )
        if lower < least - LOCATION_MUST_GAIN:
            return drafts, scales(located, drafts), starts[0]
        return plain, scales(best, plain), plain_start

    def _chunks(self, signals: Signals, diagonal: bool) -> Iterator[Chunk]:
        with self._bar(len(signals)) as bar:
            bar.set_description("predicting")
            yield from self.features_.chunks(signals, diagonal=diagonal, progress=bar.update)

    def _latent(
        self, signals: Signals, diagonal: bool = True
    ) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N C"]]:
        """Posterior means and variances; without the diagonal the variances are left at zero."""
        means, variances = [], []
        for chunk in self._chunks(signals, diagonal):
            if diagonal:
                mean, variance = self.posterior_.predict(chunk.features, chunk.residual)
            else:
                mean = self.posterior_.mean(chunk.features)
                variance = torch.zeros_like(mean)
            means.append(mean)
            variances.append(variance)
        return torch.cat(means), torch.cat(variances)

    def _bar(self, total: int) -> Any:
        """A bar on a terminal, nothing in a pipe; it appears once the work takes longer than a second."""
        return tqdm(total=total, unit=" signals", delay=1, disable=None if self.progress else True)


class GCGPClassifier(ClassifierMixin, _ConvolutionalGP):  # type: ignore[misc]
    """Graph convolutional GP classifier with a closed-form posterior (Dirichlet targets).

    What is left at `"auto"` is chosen from the training data: the weighting from the kind of domain, lengthscales,
    GP variance, α_ε and whether location counts by leave-one-out likelihood on at most 1,000 training signals.

    Args:
        weighting: How neighbours are weighed: `"auto"`, a name (`"polar"`, `"diffusion"`, `"mixture"`,
            `"anisotropic"`, `"box"`), a `gcgp.weighting.Weighting`, or a list of these: a sum of kernels, one a
            scale, each with its own inducing patches.
        chart: How distance is measured on graphs: `"euclidean"`, `"path"`, or `"auto"` (by coordinates
            if there are any).
        location: Whether the place of a vertex counts beside its patch; a number is its lengthscale in
            the units of the coordinates.
        mass: Whether the mass of each bin is part of the patch; `"auto"`: on graphs without coordinates.
        kernel: Between patches: `"rbf"`, `"matern12"`, `"matern32"`, `"matern52"`, or any GPyTorch kernel,
            which is used as it is.
        lengthscale: Of the bins, in their units.
        aggregate: `"mean"` over vertices, as signals of different size need, or `"sum"`, as in the paper.
        vertex_weights: One weight for each vertex of a domain that all signals share.
        n_inducing: Number of inducing patches for each scale.
        inducing: How they are chosen: `"k-means++"`, `"random"`, `"greedy"`.
        variance: GP variance, by which the kernel is multiplied.
        alpha: α_ε of the Dirichlet targets: how much a signal counts for a class that is not its own.
        dtype: Of patches and kernel values; sums and solves are always in float64.
        memory_limit: What the patches of one run of signals may take, in bytes or as `"500 MB"`.
        random_state: Seed or `RandomState`; the same seed gives the same model.
        progress: Show a bar on a terminal when the work takes long.

    Attributes:
        classes_: The labels, in the order of the columns of `predict_proba`.
        features_: The fitted terms: convolution, kernel and inducing patches of each scale.
        posterior_: The posterior of every class's latent function.
        variance_, alpha_: The values chosen.
        bound_: The collapsed lower bound on the log likelihood of the Dirichlet targets.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> bars = np.zeros((40, 9, 9))
    >>> for image, place in zip(bars, rng.integers(1, 8, 40), strict=True):
    ...     image[place] = 1.0
    >>> images = np.concatenate([bars, bars.transpose(0, 2, 1)])
    >>> labels = ["row"] * 40 + ["column"] * 40
    >>> model = GCGPClassifier(n_inducing=20).fit(images[::2], labels[::2])
    >>> model.score(images[1::2], labels[1::2])
    1.0
    """

    def __init__(
        self,
        weighting: Any = "auto",
        *,
        chart: str = "auto",
        location: bool | float | str = "auto",
        mass: bool | str = "auto",
        kernel: str | Kernel = "rbf",
        lengthscale: float | str = "auto",
        aggregate: str = "mean",
        vertex_weights: Any = None,
        n_inducing: int = 750,
        inducing: str = "k-means++",
        variance: float | str = "auto",
        alpha: float | str = "auto",
        dtype: str = "float32",
        memory_limit: int | str = "500 MB",
        random_state: Any = 0,
        progress: bool = True,
    ) -> None:
        self.weighting = weighting
        self.chart = chart
        self.location = location
        self.mass = mass
        self.kernel = kernel
        self.lengthscale = lengthscale
        self.aggregate = aggregate
        self.vertex_weights = vertex_weights
        self.n_inducing = n_inducing
        self.inducing = inducing
        self.variance = variance
        self.alpha = alpha
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any) -> GCGPClassifier:
        """Fit to signals, or images `[N, H, W]` or `[N, H, W, C]`, and their labels."""
        self._validate_options()
        check_positive("alpha", self.alpha)
        signals = as_signals(X)
        classes, codes = encode_labels(y, len(signals))
        self._draws = normal_draws(len(classes))
        choice = self._fit(signals, codes, np.ones(len(codes)))
        self.classes_ = classes
        self.alpha_ = choice.likelihood.alpha
        return self

    def predict_proba(self, X: Any) -> Float[np.ndarray, "N C"]:
        """Class probabilities, columns as in `classes_`: the mean of softmax(f) under the posterior of f."""
        mean, variance = self._latent(self._input(X))
        return expected_softmax(mean, variance, normal_draws(len(self.classes_))).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each signal."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of signals whose most probable class is right."""
        truth, predicted = labels_of(y), self.predict(X)
        right = np.array([a == b for a, b in zip(predicted, truth, strict=True)], dtype=float)
        return float(np.average(right, weights=sample_weight))

    def _choose(
        self, statistics: Statistics, sample: Sample, start: Point, steps: Sequence[Point]
    ) -> Choice[DirichletClassification]:
        return DirichletClassification.choose(
            statistics,
            sample,
            self._draws[:TRIAL_DRAWS],
            alpha=None if self.alpha == "auto" else float(self.alpha),
            variance=None if self.variance == "auto" else float(self.variance),
            start=start,
            steps=steps,
        )


class GCGPRegressor(RegressorMixin, _ConvolutionalGP):  # type: ignore[misc]
    """Graph convolutional GP regressor with Gaussian noise, in closed form.

    What is left at `"auto"` is chosen by the collapsed bound on the training data. Targets are centred; their mean is
    `intercept_`. See `GCGPClassifier` for the arguments; `noise` is the variance of the noise.

    Attributes:
        intercept_: Mean of the training targets, to which the latent function is added.
        features_, posterior_, variance_, bound_: As in `GCGPClassifier`.
        noise_: The noise variance chosen.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> images = rng.random((60, 8, 8))
    >>> model = GCGPRegressor(n_inducing=50).fit(images[:40], images[:40].sum(axis=(1, 2)))
    >>> mean, std = model.predict(images[40:], return_std=True)
    >>> mean.shape, std.shape
    ((20,), (20,))
    """

    def __init__(
        self,
        weighting: Any = "auto",
        *,
        chart: str = "auto",
        location: bool | float | str = "auto",
        mass: bool | str = "auto",
        kernel: str | Kernel = "rbf",
        lengthscale: float | str = "auto",
        aggregate: str = "mean",
        vertex_weights: Any = None,
        n_inducing: int = 750,
        inducing: str = "k-means++",
        variance: float | str = "auto",
        noise: float | str = "auto",
        dtype: str = "float32",
        memory_limit: int | str = "500 MB",
        random_state: Any = 0,
        progress: bool = True,
    ) -> None:
        self.weighting = weighting
        self.chart = chart
        self.location = location
        self.mass = mass
        self.kernel = kernel
        self.lengthscale = lengthscale
        self.aggregate = aggregate
        self.vertex_weights = vertex_weights
        self.n_inducing = n_inducing
        self.inducing = inducing
        self.variance = variance
        self.noise = noise
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any) -> GCGPRegressor:
        """Fit to signals, or images `[N, H, W]` or `[N, H, W, C]`, and their targets `[N]`."""
        self._validate_options()
        check_positive("noise", self.noise)
        signals = as_signals(X)
        targets = as_targets(y, len(signals))
        self.intercept_ = float(targets.mean())
        centred = targets - self.intercept_
        choice = self._fit(signals, np.zeros(len(targets), dtype=np.int64), centred)
        self.noise_ = choice.likelihood.noise
        return self

    def predict(
        self, X: Any, return_std: bool = False
    ) -> Float[np.ndarray, "N"] | tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
        """Mean of the target and, if asked for, its standard deviation, noise included."""
        mean, variance = self._latent(self._input(X), diagonal=return_std)
        predicted = self.intercept_ + mean[:, 0].numpy()
        return (predicted, (variance[:, 0] + self.noise_).sqrt().numpy()) if return_std else predicted

    def _choose(
        self, statistics: Statistics, sample: Sample, start: Point, steps: Sequence[Point]
    ) -> Choice[GaussianRegression]:
        return GaussianRegression.choose(
            statistics,
            float(sample.diagonal.mean()),
            noise=None if self.noise == "auto" else float(self.noise),
            variance=None if self.variance == "auto" else float(self.variance),
        )


def check_positive(name: str, value: Any) -> None:
    """Raise unless the option is `"auto"` or a positive number."""
    if value == "auto" and isinstance(value, str):
        return
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not np.isfinite(value) or value <= 0:
        raise ValueError(f"{name}={value!r}: expected 'auto' or a positive number")


def _sample(chunk: Chunk, labels: Int[Tensor, "n"]) -> Sample:
    """At most `SCORED_SIGNALS` of the chunk, evenly spread."""
    assert chunk.diagonal is not None
    every = slice(None, None, -(-len(labels) // SCORED_SIGNALS))
    return Sample(chunk.features[every], chunk.residual[every], chunk.diagonal[every], labels[every])
