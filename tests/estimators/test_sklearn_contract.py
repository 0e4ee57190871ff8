"""scikit-learn's own contract tests, on tables whose rows are read as signals on a graph."""

import numpy as np
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data

from gcgp import GCGPClassifier, GCGPRegressor, Patch, Runtime, Signals


def rows_as_signals(table):
    """Each row becomes a signal with one channel per column, on two vertices: the row and its half."""
    return Signals.on_graph(np.stack([table, table / 2], axis=1), [[0, 1]], coordinates=[[0.0], [1.0]])


class TableMixin:
    """Turns the tables of the contract tests into signals."""

    def fit(self, X, y):
        X, y = validate_data(self, X, y, dtype=np.float64)
        return super().fit(rows_as_signals(X), y)

    def _read(self, X):
        check_is_fitted(self)
        return rows_as_signals(validate_data(self, X, dtype=np.float64, reset=False))

    def predict_latent(self, X, return_std=False):
        return super().predict_latent(self._read(X), return_std)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


class TableClassifier(TableMixin, GCGPClassifier):
    def predict_proba(self, X):
        return super().predict_proba(self._read(X))


class TableRegressor(TableMixin, GCGPRegressor):
    def predict(self, X, return_std=False):
        return super().predict(self._read(X), return_std)


OPTIONS = {
    "weighting": "radial",  # fewer models are compared in each of many fits
    "kernel": "rbf",
    "chart": "euclidean",
    "patch": Patch(position=0.3),
    "runtime": Runtime(dtype="float64"),
    "n_inducing": 20,
}


@parametrize_with_checks([TableClassifier(**OPTIONS), TableRegressor(**OPTIONS)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)
