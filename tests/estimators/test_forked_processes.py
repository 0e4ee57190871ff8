"""Models in processes that were forked after a fit."""

import multiprocessing

import numpy as np
import pytest
import torch
from joblib import Parallel, delayed

from gcgp import GCGPClassifier, GCGPRegressor, Patch, PatchKernel, Signals
from gcgp.weighting import Polar, Radial

TIMEOUT_SECONDS = 60
"""The first run compiles loops."""
OPTIONS = {
    "n_inducing": 8,
    "kernel": PatchKernel(lengthscale=0.4, variance=3.0),
    "patch": Patch(position=False),
}
pytestmark = [
    pytest.mark.skipif(
        "fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this platform"
    ),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def images():
    return Signals.from_images(RNG.random((20, 6, 6)))


def graphs():
    return Signals.on_graph(RNG.random((20, 5, 2)), [[0, 1], [1, 2], [3, 4]], coordinates=RNG.random((5, 2)))


def in_fork(work):
    """The result of the work in a forked process."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=lambda: queue.put(work()))
    child.start()
    try:
        return queue.get(timeout=TIMEOUT_SECONDS)
    finally:
        child.kill()
        child.join()


@pytest.mark.parametrize("make", [images, graphs])
def test_a_fitted_model_predicts_in_a_forked_process(make):
    signals = make()
    model = GCGPClassifier(Polar([0.5, 1], 4), **OPTIONS).fit(signals, np.arange(20) % 3)
    expected = model.predict_proba(signals)
    np.testing.assert_allclose(in_fork(lambda: model.predict_proba(signals)), expected, atol=1e-6)


def test_a_forked_process_uses_one_thread():
    signals = images()

    def fitted():
        large = torch.ones(300, 300)
        targets = signals.values.reshape(20, -1).sum(axis=1)
        model = GCGPRegressor(Radial([0, 1]), **OPTIONS).fit(signals, targets)
        return torch.get_num_threads(), float((large @ large).sum()), model.predict(signals)

    fitted()
    threads, total, predicted = in_fork(fitted)
    assert threads == 1
    assert total == 300**3
    np.testing.assert_allclose(predicted, fitted()[2], rtol=1e-4)


def test_forked_processes_of_joblib_predict():
    signals = images()
    model = GCGPClassifier(**OPTIONS).fit(signals, np.arange(20) % 3)
    parallel = Parallel(2, backend="multiprocessing", timeout=TIMEOUT_SECONDS)
    for probabilities in parallel(delayed(model.predict_proba)(signals) for _ in range(2)):
        np.testing.assert_allclose(probabilities, model.predict_proba(signals), atol=1e-6)
