"""Graph convolutional GP classification as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from sklearn.base import ClassifierMixin

from gcgp._runtime.processes import ProcessGroup
from gcgp.domain.adapters.signals import as_meshes_or_signals
from gcgp.estimators.base import ConvolutionalGP
from gcgp.estimators.labels import encode_labels, labels_of
from gcgp.estimators.sharding import labels_of_all_processes


class GCGPClassifier(ClassifierMixin, ConvolutionalGP):
    """Graph convolutional GP classifier with a closed-form posterior (Dirichlet targets).

    What is left at `"auto"` is chosen from the training data, by leave-one-out likelihood on at most 1,000
    training signals: weighting, chart, kernel, aggregation and the contents of patches, as far as `search`
    says; lengthscales, variance and α_ε. Strings are shorthand for option objects with default values; the
    fields of an object can be addressed in `set_params` and `GridSearchCV`, for example
    `kernel__lengthscale`.

    Args:
        weighting: How neighbors are weighted: `"auto"`, `"polar"`, `"radial"`, `"mixture"`, `"anisotropic"`,
            `"box"`, a `Weighting` such as `Polar([1, 3, 5], 8)`, or a list of these: a sum of kernels, one
            per scale, each with its own inducing patches.
        chart: How distance is measured. Graphs: `"euclidean"` (between coordinates; edges are not used),
            `"path"` (along edges), `"hops"` (number of edges); `"auto"`: the best of these and of the sum of
            `"euclidean"` and `"hops"` (without `search`, `"euclidean"` if the training graphs have
            coordinates, else `"path"`). Meshes: `"geodesic"` (`"auto"`) or `"logmap"`.
        patch: What a patch contains beside the weighted bins: `"auto"` or `Patch(...)`.
        kernel: The kernel between patches: `"auto"`, `"rbf"`, `"matern12"`, `"matern32"`, `"matern52"`, any
            GPyTorch kernel, or `PatchKernel(...)`, which also takes lengthscale, variance and rotation
            averaging.
        aggregate: `"auto"`, `"mean"` or `"sum"` over vertices, or `Aggregate(...)`, which also takes vertex
            weights.
        n_inducing: Number of inducing patches per scale; `"auto"`: 750 to 1,500, depending on the number of
            signals, and at most 1,500 for all scales together; 750 per scale without `search`.
        inducing: How they are chosen: `"k-means++"`, `"random"` or `"greedy"`.
        likelihood: `"auto"`, or `Dirichlet(alpha=...)` for the closed form, and `"anchored"`, `"softmax"`,
            `"robust-max"` or the objects of these names for variational inference.
        inference: `"closed-form"`; `"refined"`: a softmax then moves the means as far as that helps held-out
            training signals; `"natural-gradient"`: variational inference that starts at the closed form;
            `"svgp"`: the paper's method, Adam on all parameters in batches. Or `ClosedForm()`, `Refined()`,
            `NaturalGradient(...)`, `SVGP(...)`.
        search: How thoroughly weighting, chart, kernel, aggregation and the contents of patches are compared,
            where they are `"auto"`: `"fast"`, `"thorough"`, or None (not at all). The guide lists what is
            compared on which data.
        layers: Unsupervised layers before the weighting: None, a list of `Layer`, a list of lists (the model
            is a sum of terms, each with its own layers; `[]`: none), or `"auto"`: `search` compares
            hierarchical models with flat ones.
        descriptor: How values on vertices are computed if X is a list of meshes: a descriptor such as
            `WaveKernelSignature(scale="area")`, a list of descriptors, among which the leave-one-out
            likelihood decides, or `"auto"`: `search` compares all descriptors at both scales. With one mesh
            per class, where nothing can be compared, or without `search`, the first of them is used.
        learn: Parameters to learn by gradients: None, True, names, or `Learn(...)`.
        runtime: Precision, device, memory limit, checkpoint and progress: `Runtime(...)`.
        random_state: Seed or `RandomState`; the same seed gives the same model.

    Attributes:
        classes_: The labels, in the order of the columns of `predict_proba`.
        n_features_in_: Number of channels.
        descriptor_: The fitted descriptor; None if X has values.
        search_: The configurations that `search` compared; prints as a table, `to_pandas()` gives a
            `DataFrame`.
        weightings_, kernels_: The fitted weighting and patch kernel of each scale.
        likelihood_: The likelihood that maps latent functions to probabilities.
        variance_, alpha_: Variance of the GP and α_ε of the Dirichlet targets.
        softmax_weight_: Weight of the softmax beside the targets with `inference="refined"`; else 0.
        bound_: Lower bound on the log likelihood: of the Dirichlet targets for the closed form, of the labels
            for variational inference (of both together with the anchored likelihood).
        history_, n_iter_: The steps of iterative stages, and their number (at least 1).
        start_weightings_: The weightings before learning, if something was learned.
        features_, posterior_: Terms of the model, and the posterior of the latent functions.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> bars = np.zeros((40, 9, 9))
    >>> for image, row in zip(bars, rng.integers(1, 8, 40), strict=True):
    ...     image[row] = 1.0
    >>> images = np.concatenate([bars, bars.transpose(0, 2, 1)])
    >>> labels = ["row"] * 40 + ["column"] * 40
    >>> model = GCGPClassifier(n_inducing=20).fit(images[::2], labels[::2])
    >>> model.score(images[1::2], labels[1::2])
    1.0
    """

    task: ClassVar[str] = "classification"

    def fit(self, X: Any, y: Any) -> GCGPClassifier:
        """Fit to signals, images `[N, H, W]` or `[N, H, W, C]`, or a list of meshes, and their labels."""
        self._resolve_options()
        inputs, processes = as_meshes_or_signals(X), ProcessGroup.current()
        labels = labels_of_all_processes(labels_of(y), len(inputs), processes)
        classes, codes = encode_labels(labels, len(labels))
        fitted = self._fit(inputs, codes, np.ones(len(codes)), len(classes), processes).inference
        self.classes_ = classes
        self.alpha_ = fitted.closed_form.alpha
        self.softmax_weight_ = fitted.attributes.get("softmax_weight_", 0.0)
        return self

    def predict_proba(self, X: Any) -> Float[np.ndarray, "N C"]:
        """Class probabilities, columns as in `classes_`: the mean of softmax(f) under the posterior of f.

        Computed from 512 quasi-random draws, the same for every signal: exact to about 0.002. With the
        likelihood `"robust-max"`, computed by quadrature, exact to about 0.0001.
        """
        mean, variance = self._latent(self._input(X))
        probabilities: np.ndarray = self.likelihood_.probabilities(mean, variance).numpy()
        return probabilities

    def predict_log_proba(self, X: Any) -> Float[np.ndarray, "N C"]:
        """Logarithms of the class probabilities, which are at least the smallest positive number."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each signal."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_probable]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy: the share of signals whose most probable class is the true one."""
        truth, predicted = labels_of(y), self.predict(X)
        correct = np.array([a == b for a, b in zip(predicted, truth, strict=True)], dtype=float)
        return float(np.average(correct, weights=sample_weight))
