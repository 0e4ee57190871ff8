"""Evidence and latent functions of models that may be the last step of a scikit-learn `Pipeline`."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from gcgp.domain import Signals
from gcgp.estimators.evidence import VertexEvidence


def evidence(model: Any, X: Any) -> VertexEvidence:
    """`model.evidence(X)`, for an estimator or a pipeline that ends in one.

    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from gcgp import GCGPClassifier
    >>> images = np.random.default_rng(0).random((20, 5, 5))
    >>> model = make_pipeline("passthrough", GCGPClassifier(n_inducing=10)).fit(images, [0, 1] * 10)
    >>> mean, std = evidence(model, images[:1])[0]
    >>> mean.shape
    (5, 5, 2)
    """
    estimator, signals = last_step(model, X)
    result: VertexEvidence = estimator.evidence(signals)
    return result


def predict_latent(
    model: Any, X: Any, return_std: bool = False
) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    """`model.predict_latent(X, return_std)`, for an estimator or a pipeline that ends in one."""
    estimator, signals = last_step(model, X)
    result: np.ndarray | tuple[np.ndarray, np.ndarray] = estimator.predict_latent(signals, return_std)
    return result


def last_step(model: Any, X: Any) -> tuple[Any, Any]:
    """The last step of a pipeline, and what the steps before it, or its own descriptor, make of X."""
    if isinstance(model, Pipeline):
        X = model[:-1].transform(X) if len(model) > 1 else X
        model = model[-1]
    descriptor = getattr(model, "descriptor_", None)
    return model, X if descriptor is None or isinstance(X, Signals) else descriptor.transform(X)
