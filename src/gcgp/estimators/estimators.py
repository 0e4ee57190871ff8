"""scikit-learn estimators: a graph convolutional GP as classifier and as regressor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gpytorch.kernels import Kernel
from jaxtyping import Float
from sklearn.base import ClassifierMixin, RegressorMixin

from gcgp._runtime.errors import unknown_option
from gcgp._runtime.processes import ProcessGroup
from gcgp.estimators.base import ConvolutionalGP, check_positive
from gcgp.estimators.fitting import TRIAL_DRAWS
from gcgp.estimators.sharding import of_all_ranks
from gcgp.estimators.validation import as_signals, as_targets, encode_labels, labels_of
from gcgp.estimators.value_range import check_targets
from gcgp.inference import DirichletClassification, GaussianRegression, Statistics
from gcgp.inference.search import ScoringBatch, SearchPoint, SelectedModel
from gcgp.inference.softmax import normal_draws
from gcgp.selection.variational import INFERENCES, LIKELIHOODS, class_likelihood


class GCGPClassifier(ClassifierMixin, ConvolutionalGP):
    """Graph convolutional GP classifier with a closed-form posterior (Dirichlet targets).

    What is left at `"auto"` is chosen from the training data: the weighting from the kind of domain;
    lengthscales, GP variance, α_ε and whether position counts by leave-one-out likelihood on at most 1,000
    training signals.

    Args:
        weighting: How neighbors are weighed: `"auto"`, a name (`"polar"`, `"diffusion"`, `"mixture"`,
            `"anisotropic"`, `"box"`), a `gcgp.weighting.Weighting`, or a list of these: a sum of kernels, one
            a scale, each with its own inducing patches.
        chart: How distance is measured. On graphs: `"euclidean"` (between coordinates; edges are not used),
            `"path"` (along edges), or `"auto"`: `"euclidean"` if the training graphs have coordinates, else
            `"path"`. On meshes: `"geodesic"` (`"auto"`) or `"logmap"`. It is fixed by `fit`; graphs to
            predict must have coordinates and edge lengths if the training graphs had them, and only then.
        position: Whether the place of a vertex counts beside its patch; a number is its lengthscale in
            the units of the coordinates.
        mass: Whether the mass of each bin is part of the patch; `"auto"`: on graphs without coordinates.
        areas: Whether a vertex counts by the area round it; `"auto"`: on meshes.
        pool_rotations: Whether patches that differ only by a rotation of their directions are the same;
            `"auto"`: on meshes, where the first direction is arbitrary.
        kernel: Between patches: `"rbf"`, `"matern12"`, `"matern32"`, `"matern52"`, or any GPyTorch kernel,
            which is used as it is.
        lengthscale: Of the bins, in their units.
        aggregate: `"mean"` over vertices, as signals of different size need, or `"sum"`, as in the paper. A
            sum over signals of different sizes has a constant term in its kernel, so that f need not be
            proportional to the size.
        vertex_weights: One weight for each vertex of a domain that all signals share.
        n_inducing: Number of inducing patches for each scale.
        inducing: How they are chosen: `"k-means++"`, `"random"`, `"greedy"`.
        variance: GP variance, by which the kernel is multiplied.
        alpha: α_ε of the Dirichlet targets: how much a signal counts for a class that is not its own.
        learn: What is learned by gradients beside what is chosen: `True` for lengthscale, variance, radii,
            widths and α_ε, or names of these and of `"lengthscales"` (one a column), `"position"`,
            `"angles"`, `"angular_width"`, `"vertex_weights"`, `"inducing"` and the like; an error lists them.
        objective: What learning maximizes: the log likelihood of training signals, each left out in its turn
            (`"leave-one-out"`, which is what `"auto"` means), or the collapsed `"bound"`.
        optimizer: Of learning: `"l-bfgs"` or `"adam"`; or `"paper"`, see `inference`.
        max_iter: Iterations of learning, on part of the signals and on all of them together; for
            `optimizer="paper"`, passes through the signals.
        verbose: Print a line on the error stream for each iteration of learning.
        inference: `"closed-form"`: labels as Gaussian targets. `"refined"`: then a softmax moves the means
            of the latent functions, as far as that helps training signals that are held out; it takes little
            longer, and wrong predictions become fewer. Standard deviations stay those of the closed form, in
            predictions too. `"variational"`: natural gradient steps from the
            closed form, with the likelihood below; or, with `optimizer="paper"`, Adam on everything in
            batches.
        likelihood: For variational inference: `"softmax"`, `"robust-max"`, or `"anchored"`, a softmax beside
            the targets of the closed form. `"auto"` is the latter, which predicts best, but a softmax where
            a bound is maximized (`objective="bound"`, `optimizer="paper"`).
        batch_size, learning_rate: Of `optimizer="paper"`.
        checkpoint: A file that keeps what learning and variational inference have reached. A fit that was
            killed and is begun again with the same data and options goes on from there.
        dtype: Of patches and kernel values: `"float32"`, `"float64"`, or `"auto"`: float64 for small data,
            where it costs little. Sums and solves are always in float64.
        memory_limit: What the patches of one run of signals may take, in bytes or as `"500 MB"`. Learning
            keeps as much from one pass over the signals to the next, so that more is faster.
        device: Where torch sums kernels over patches, which is most of the work: `"cpu"`, or `"cuda"` and the
            like. Patches are made, and systems of equations solved, by the CPU.
        random_state: Seed or `RandomState`; the same seed gives the same model.
        progress: Show a bar on a terminal when the work takes long.

    Attributes:
        classes_: The labels, in the order of the columns of `predict_proba`.
        features_: The fitted terms: convolution, kernel and inducing patches of each scale.
        posterior_: The posterior of every class's latent function.
        variance_, alpha_: The values chosen.
        bound_: The collapsed lower bound on the log likelihood of the Dirichlet targets; of variational
            inference, the evidence lower bound (with `likelihood="anchored"`, of both parts together).
        history_, n_iter_: The steps of learning, and how many there were (1 for the closed form alone).
        start_weightings_: The weightings that learning started from.
        softmax_weight_: With `inference="refined"`, the weight of the softmax beside the targets; else 0.
        likelihood_: The likelihood that `predict_proba` uses.

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

    _likelihood = DirichletClassification
    _likelihood_parameter = "alpha"
    _inferences = INFERENCES

    def __init__(
        self,
        weighting: Any = "auto",
        *,
        chart: str = "auto",
        position: bool | float | str = "auto",
        bin_counts: bool | str = "auto",
        area_weighted: bool | str = "auto",
        pool_rotations: bool | str = "auto",
        kernel: str | Kernel = "rbf",
        lengthscale: float | str = "auto",
        aggregate: str = "mean",
        vertex_weights: Any = None,
        n_inducing: int = 750,
        inducing: str = "k-means++",
        variance: float | str = "auto",
        alpha: float | str = "auto",
        likelihood: str = "auto",
        learn: bool | str | Sequence[str] = False,
        objective: str = "auto",
        optimizer: str = "l-bfgs",
        max_iter: int = 50,
        verbose: bool = False,
        inference: str = "closed-form",
        batch_size: int = 200,
        learning_rate: float = 0.001,
        checkpoint: Any = None,
        dtype: str = "auto",
        memory_limit: int | str = "500 MB",
        device: str = "cpu",
        random_state: Any = 0,
        progress: bool = True,
    ) -> None:
        self.weighting = weighting
        self.chart = chart
        self.position = position
        self.bin_counts = bin_counts
        self.area_weighted = area_weighted
        self.pool_rotations = pool_rotations
        self.kernel = kernel
        self.lengthscale = lengthscale
        self.aggregate = aggregate
        self.vertex_weights = vertex_weights
        self.n_inducing = n_inducing
        self.inducing = inducing
        self.variance = variance
        self.alpha = alpha
        self.likelihood = likelihood
        self.learn = learn
        self.objective = objective
        self.optimizer = optimizer
        self.max_iter = max_iter
        self.verbose = verbose
        self.inference = inference
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.checkpoint = checkpoint
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any) -> GCGPClassifier:
        """Fit to signals, or images `[N, H, W]` or `[N, H, W, C]`, and their labels."""
        self._validate_options()
        check_positive("alpha", self.alpha)
        if not isinstance(self.likelihood, str) or self.likelihood not in LIKELIHOODS:
            raise unknown_option("likelihood", self.likelihood, LIKELIHOODS)
        signals, processes = as_signals(X), ProcessGroup.current()
        classes, codes = encode_labels(*of_all_ranks(labels_of(y), len(signals), processes))
        fitted = self._fit(signals, codes, np.ones(len(codes)), len(classes), processes)
        self.classes_ = classes
        self.alpha_ = fitted.choice.likelihood.alpha
        self.softmax_weight_ = fitted.softmax_weight
        robust = self.inference == "variational" and self.likelihood == "robust-max"
        self.likelihood_ = "robust-max" if robust else "softmax"
        return self

    def predict_proba(self, X: Any) -> Float[np.ndarray, "N C"]:
        """Class probabilities, columns as in `classes_`: the mean of softmax(f) under the posterior of f.

        By 512 quasi-random draws, the same for every signal: exact to about 0.002 in each probability. With
        the likelihood `"robust-max"`, chances by quadrature instead, exact to about 0.0001.
        """
        mean, variance = self._latent(self._input(X))
        return class_likelihood(self.likelihood_, len(self.classes_)).probabilities(mean, variance).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each signal."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of signals whose most probable class is right."""
        truth, predicted = labels_of(y), self.predict(X)
        right = np.array([a == b for a, b in zip(predicted, truth, strict=True)], dtype=float)
        return float(np.average(right, weights=sample_weight))

    def _choose(
        self,
        statistics: Statistics,
        sample: ScoringBatch,
        start: SearchPoint,
        steps: Sequence[SearchPoint],
        processes: ProcessGroup,
    ) -> SelectedModel[DirichletClassification]:
        return DirichletClassification.choose(
            statistics,
            sample,
            normal_draws(len(statistics.count), TRIAL_DRAWS),
            alpha=None if self.alpha == "auto" else float(self.alpha),
            variance=None if self.variance == "auto" else float(self.variance),
            start=start,
            steps=steps,
            processes=processes,
        )


class GCGPRegressor(RegressorMixin, ConvolutionalGP):
    """Graph convolutional GP regressor with Gaussian noise, in closed form.

    What is left at `"auto"` is chosen by the collapsed bound on the training data. Targets are centered; their
    mean is `intercept_`. See `GCGPClassifier` for the arguments; `noise` is the variance of the noise.

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

    _likelihood = GaussianRegression
    _likelihood_parameter = "noise"
    _inferences = ("closed-form", "variational")

    def __init__(
        self,
        weighting: Any = "auto",
        *,
        chart: str = "auto",
        position: bool | float | str = "auto",
        bin_counts: bool | str = "auto",
        area_weighted: bool | str = "auto",
        pool_rotations: bool | str = "auto",
        kernel: str | Kernel = "rbf",
        lengthscale: float | str = "auto",
        aggregate: str = "mean",
        vertex_weights: Any = None,
        n_inducing: int = 750,
        inducing: str = "k-means++",
        variance: float | str = "auto",
        noise: float | str = "auto",
        learn: bool | str | Sequence[str] = False,
        objective: str = "auto",
        optimizer: str = "l-bfgs",
        max_iter: int = 50,
        verbose: bool = False,
        inference: str = "closed-form",
        batch_size: int = 200,
        learning_rate: float = 0.001,
        checkpoint: Any = None,
        dtype: str = "auto",
        memory_limit: int | str = "500 MB",
        device: str = "cpu",
        random_state: Any = 0,
        progress: bool = True,
    ) -> None:
        self.weighting = weighting
        self.chart = chart
        self.position = position
        self.bin_counts = bin_counts
        self.area_weighted = area_weighted
        self.pool_rotations = pool_rotations
        self.kernel = kernel
        self.lengthscale = lengthscale
        self.aggregate = aggregate
        self.vertex_weights = vertex_weights
        self.n_inducing = n_inducing
        self.inducing = inducing
        self.variance = variance
        self.noise = noise
        self.learn = learn
        self.objective = objective
        self.optimizer = optimizer
        self.max_iter = max_iter
        self.verbose = verbose
        self.inference = inference
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.checkpoint = checkpoint
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any) -> GCGPRegressor:
        """Fit to signals, or images `[N, H, W]` or `[N, H, W, C]`, and their targets `[N]`."""
        self._validate_options()
        check_positive("noise", self.noise)
        signals, processes = as_signals(X), ProcessGroup.current()
        targets = as_targets(*of_all_ranks(labels_of(y), len(signals), processes))
        check_targets(targets)
        self.intercept_ = float(targets.mean())
        centered = targets - self.intercept_
        fitted = self._fit(signals, np.zeros(len(targets), dtype=np.int64), centered, 1, processes)
        self.noise_ = fitted.choice.likelihood.noise
        return self

    def predict(
        self, X: Any, return_std: bool = False
    ) -> Float[np.ndarray, "N"] | tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
        """Mean of the target and, if asked for, its standard deviation, noise included."""
        mean, variance = self._latent(self._input(X), diagonal=return_std)
        predicted = self.intercept_ + mean[:, 0].numpy()
        return (predicted, (variance[:, 0] + self.noise_).sqrt().numpy()) if return_std else predicted

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the predicted means; targets may be given as to `fit`."""
        targets = labels_of(y)
        return float(super().score(X, as_targets(targets, len(targets)), sample_weight))

    def _choose(
        self,
        statistics: Statistics,
        sample: ScoringBatch,
        start: SearchPoint,
        steps: Sequence[SearchPoint],
        processes: ProcessGroup,
    ) -> SelectedModel[GaussianRegression]:
        return GaussianRegression.choose(
            statistics,
            float(sample.diagonal.mean()),
            noise=None if self.noise == "auto" else float(self.noise),
            variance=None if self.variance == "auto" else float(self.variance),
        )
