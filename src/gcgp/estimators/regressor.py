"""Graph convolutional GP regression as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from sklearn.base import RegressorMixin

from gcgp._runtime.processes import ProcessGroup
from gcgp.domain.adapters.signals import as_meshes_or_signals
from gcgp.estimators.base import ConvolutionalGP
from gcgp.estimators.labels import as_targets, labels_of
from gcgp.estimators.sharding import labels_of_all_processes
from gcgp.estimators.value_range import check_targets


class GCGPRegressor(RegressorMixin, ConvolutionalGP):
    """Graph convolutional GP regressor with Gaussian noise, in closed form.

    What is left at `"auto"` is chosen by the leave-one-out density of training targets. Targets are centered;
    their mean is `intercept_`. The arguments are those of `GCGPClassifier`, with the likelihood
    `Gaussian(noise="auto")` and without `inference="refined"`.

    Attributes:
        intercept_: Mean of the training targets, to which the latent function is added.
        noise_: Variance of the noise.
        n_features_in_, descriptor_, search_, weightings_, kernels_, variance_, bound_, history_, n_iter_,
            start_weightings_, features_, posterior_: As in `GCGPClassifier`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> images = rng.random((60, 8, 8))
    >>> model = GCGPRegressor(n_inducing=50).fit(images[:40], images[:40].sum(axis=(1, 2)))
    >>> mean, std = model.predict(images[40:], return_std=True)
    >>> mean.shape, std.shape
    ((20,), (20,))
    """

    task: ClassVar[str] = "regression"

    def fit(self, X: Any, y: Any) -> GCGPRegressor:
        """Fit to signals, images `[N, H, W]` or `[N, H, W, C]`, or meshes, and their targets `[N]`."""
        self._resolve_options()
        inputs, processes = as_meshes_or_signals(X), ProcessGroup.current()
        labels = labels_of_all_processes(labels_of(y), len(inputs), processes)
        targets = as_targets(labels, len(labels))
        check_targets(targets)
        intercept = float(targets.mean())
        group = np.zeros(len(targets), dtype=np.int64)
        fitted = self._fit(inputs, group, targets - intercept, 1, processes).inference
        self.intercept_ = intercept
        self.noise_ = fitted.closed_form.noise
        return self

    def predict(
        self, X: Any, return_std: bool = False
    ) -> Float[np.ndarray, "N"] | tuple[Float[np.ndarray, "N"], Float[np.ndarray, "N"]]:
        """Mean of the target and, if requested, its standard deviation, noise included."""
        mean, variance = self._latent(self._input(X), diagonal=return_std)
        predicted = self.intercept_ + mean[:, 0].numpy()
        return (predicted, (variance[:, 0] + self.noise_).sqrt().numpy()) if return_std else predicted

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the predicted means; targets may be given as to `fit`."""
        targets = labels_of(y)
        return float(super().score(X, as_targets(targets, len(targets)), sample_weight))
