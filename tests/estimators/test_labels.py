"""Labels and targets in all containers that users pass; errors name the index of the signal."""

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from gcgp import GCGPClassifier, GCGPRegressor, Patch, PatchKernel
from gcgp.estimators.labels import as_targets, encode_labels, labels_of

IMAGES = np.random.default_rng(0).random((6, 4, 4))
LABELS = [3, 1, 3, 1, 1, 3]
FAST = {"n_inducing": 5, "kernel": PatchKernel(lengthscale=1.0, variance=1.0), "patch": Patch(position=False)}


@pytest.mark.parametrize(
    "given",
    [
        torch.tensor(LABELS),
        torch.tensor(LABELS)[:, None],
        [torch.tensor(label) for label in LABELS],
        [torch.tensor([label]) for label in LABELS],
        tuple(np.array([label]) for label in LABELS),
        [np.int64(label) for label in LABELS],
        np.array([torch.tensor(label) for label in LABELS] + [None], dtype=object)[:6],
        np.array(LABELS, dtype=object),
        np.ma.masked_array(LABELS, mask=False),
        pd.Series(LABELS, index=range(10, 16)),
        pd.Series(LABELS, dtype="Int64"),
        pd.DataFrame({"label": LABELS}),
        iter(LABELS),
    ],
    ids=lambda given: type(given).__name__,
)
def test_integer_labels_in_any_container(given):
    classes, codes = encode_labels(given, 6)
    assert classes.tolist() == [1, 3]
    assert classes.dtype.kind == "i"
    assert codes.tolist() == [1, 0, 1, 0, 0, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_targets_can_be_tensors(dtype):
    whole = torch.tensor([1.0, 2.0, -0.5], dtype=dtype, requires_grad=True)
    for given in (whole, whole[:, None], list(whole), list(whole[:, None])):
        assert as_targets(given, 3).tolist() == [1.0, 2.0, -0.5]


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (pd.Categorical(["b", "a", "b"]), ["a", "b"]),
        (pd.Series(["b", "a", "b"]), ["a", "b"]),
        (pd.Series([True, False, True], dtype="boolean"), [False, True]),
        ([torch.tensor(True), torch.tensor(False), torch.tensor(True)], [False, True]),
        ([("b", 1), ("a", 2), ("b", 1)], [("a", 2), ("b", 1)]),
        (np.array(["2020-01-02", "2020-01-01", "2020-01-02"], dtype="datetime64[D]"), None),
    ],
)
def test_labels_that_are_not_numbers(classes, expected):
    encoded, codes = encode_labels(classes, 3)
    assert codes.tolist() == [1, 0, 1]
    assert expected is None or encoded.tolist() == expected


MISSING = {
    "NaN": [0.0, 1.0, np.nan],
    "NaN in an array": np.array([0.0, 1.0, np.nan]),
    "NaN among objects": np.array(["a", "b", np.nan], dtype=object),
    "NaN among strings": ["a", "b", float("nan")],
    "None": [0, 1, None],
    "None among objects": np.array(["a", "b", None], dtype=object),
    "NA": [0, 1, pd.NA],
    "NA in a series": pd.Series([0, 1, pd.NA], dtype="Int64"),
    "NA among strings": pd.Series(["a", "b", None]),
    "missing category": pd.Categorical(["a", "b", None]),
    "missing date": np.array(["2020-01-02", "2020-01-01", "NaT"], dtype="datetime64[D]"),
    "masked": np.ma.masked_array([0, 1, 1], mask=[False, False, True]),
    "masked column": np.ma.masked_array([[0], [1], [1]], mask=[[False], [False], [True]]),
    "masked constant": [0, 1, np.ma.masked],
    "NaN tensor": torch.tensor([0.0, 1.0, torch.nan]),
    "NaN tensors": [torch.tensor([value]) for value in (0.0, 1.0, torch.nan)],
}


@pytest.mark.parametrize("given", MISSING.values(), ids=MISSING)
def test_the_error_for_a_missing_label_names_its_signal(given):
    with pytest.raises(ValueError, match=r"y\[2\] is .*: signal 2 has no label"):
        encode_labels(given, 3)
    if not any(isinstance(item, str) for item in list(given)):
        with pytest.raises(ValueError, match=r"y\[2\] is .*: signal 2 has no label"):
            as_targets(given, 3)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([torch.tensor([0]), torch.tensor([1, 2])], ValueError, "y[1] has shape (2,): expected one label"),
        ([np.zeros((1, 2)), np.zeros((1, 2))], ValueError, "y[0] has shape (1, 2): expected one label"),
        (np.ma.masked_array(np.eye(2)), ValueError, "y: expected one label per signal, got shape (2, 2)"),
        (torch.eye(2), ValueError, "y: expected one label per signal, got shape (2, 2)"),
        (torch.tensor(1), ValueError, "y: expected one label per signal, got shape ()"),
        ({"a": 0, "b": 1}, TypeError, "y: expected a list or array of labels, got dict"),
        ({0, 1}, TypeError, "y: expected a list or array of labels, got set"),
        ("ab", TypeError, "y: expected a list or array of labels, got str"),
        (7, TypeError, "y: expected a list or array of labels, got int"),
        (scipy.sparse.eye(2).tocsr(), TypeError, "y: expected a list or array of labels, got csr_matrix"),
        (None, ValueError, "y: labels are required, got None"),
    ],
)
def test_anything_but_a_list_of_labels_is_rejected(given, error, message):
    with pytest.raises(error, match=re.escape(message)):
        labels_of(given)


def test_a_classifier_accepts_tensors_of_one_element():
    labels = [torch.tensor([label]) for label in LABELS]
    model = GCGPClassifier(**FAST).fit(IMAGES, labels)
    assert model.classes_.tolist() == [1, 3]
    assert model.score(IMAGES, labels) == model.score(IMAGES, LABELS)
    with pytest.raises(ValueError, match=r"y\[0\] is None: signal 0 has no label"):
        GCGPClassifier(**FAST).fit(IMAGES, [None, *LABELS[1:]])


def test_a_regressor_accepts_tensors_that_require_gradients():
    targets = torch.tensor(LABELS, dtype=torch.bfloat16, requires_grad=True)
    model = GCGPRegressor(**FAST).fit(IMAGES, targets)
    assert model.intercept_ == 2.0
    assert np.isfinite(model.score(IMAGES, targets))
