"""Baselines on meshes: logistic regression on the spectrum, or on the distribution of signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from experiments.models import Fit, TrainedModel
from gcgp import HeatKernelSignature, Mesh, WaveKernelSignature
from gcgp.mesh.spectrum import laplace_beltrami

N_EIGENVALUES = 50
EIGENPAIRS = 100
"""As the descriptors; their spectra are computed once and cached."""
MAX_FOLDS = 5
INVERSE_PENALTIES = np.logspace(-3, 3, 13)
DEFAULT_PENALTY = 1.0
"""Inverse penalty where a class has one mesh, so that cross-validation is not possible."""
MIN_DEVIATION = 1e-12
"""Added to standard deviations of signatures, which are zero on a sphere."""

Describe = Callable[[Sequence[Mesh]], Float[np.ndarray, "N d"]]
"""From meshes to one row of features each."""


def shape_dna(train: Sequence[Mesh]) -> Describe:
    """The sorted eigenvalues at area 1, without the first, which is 0 (ShapeDNA, Reuter et al. 2006).

    Each is divided by its index, because by Weyl's law eigenvalues grow in proportion to it.
    """

    def describe(meshes: Sequence[Mesh]) -> Float[np.ndarray, "N d"]:
        spectra = [laplace_beltrami(mesh, EIGENPAIRS).at_unit_area() for mesh in meshes]
        rows = np.stack([spectrum.eigenvalues[1 : N_EIGENVALUES + 1] for spectrum in spectra])
        return rows / np.arange(1, rows.shape[1] + 1)

    return describe


def pooled_signatures(train: Sequence[Mesh]) -> Describe:
    """Logarithms of the mean and of the standard deviation of signatures over the area of a mesh.

    The mean of a wave kernel signature is the same for all meshes of one area, because eigenfunctions are
    normalized; it is left out. The mean of a heat kernel signature is the heat trace.
    """
    heat = HeatKernelSignature(scale="area", standardize=False).fit(train)
    wave = WaveKernelSignature(scale="area", standardize=False).fit(train)

    def describe(meshes: Sequence[Mesh]) -> Float[np.ndarray, "N d"]:
        areas = [laplace_beltrami(mesh, EIGENPAIRS).at_unit_area().mass for mesh in meshes]
        rows = []
        for descriptor in (heat, wave):
            signals = descriptor.transform(list(meshes))
            values = np.split(signals.values, np.cumsum(signals.vertex_counts)[:-1])
            means = np.stack([area @ part for area, part in zip(areas, values, strict=True)])
            squares = np.stack([area @ part**2 for area, part in zip(areas, values, strict=True)])
            deviations = np.sqrt(np.maximum(squares - means**2, 0.0)) + MIN_DEVIATION
            rows += [np.log(means)] if descriptor is heat else []
            rows.append(np.log(deviations))
        return np.concatenate(rows, axis=1)

    return describe


def logistic_regression(features: Callable[[Sequence[Mesh]], Describe]) -> Fit:
    """Logistic regression on standardized features, with a penalty chosen by cross-validation.

    The penalty is that with the highest log likelihood of held-out training meshes, in as many folds as the
    smallest class has meshes, at most five.
    """

    def fit(train: Sequence[Mesh], labels: np.ndarray, inducing: int | None, seed: int) -> TrainedModel:
        describe = features(train)
        model: Any = make_pipeline(StandardScaler(), LogisticRegression(C=DEFAULT_PENALTY, max_iter=10_000))
        folds = min(MAX_FOLDS, np.unique(labels, return_counts=True)[1].min())
        if folds > 1:
            model = GridSearchCV(
                model,
                {"logisticregression__C": INVERSE_PENALTIES},
                scoring="neg_log_loss",
                cv=StratifiedKFold(folds, shuffle=True, random_state=seed),
            )
        model.fit(describe(train), labels)
        chosen = model.best_params_["logisticregression__C"] if folds > 1 else DEFAULT_PENALTY
        return TrainedModel(
            lambda meshes: model.predict_proba(describe(meshes)), {"inverse_penalty": float(chosen)}
        )

    return fit
