"""What a long run has reached, on disk."""

import numpy as np
import pytest
import torch

from gcgp import GCGPClassifier
from gcgp._runtime.checkpoint import Checkpoint

STATE = {"values": torch.arange(1000.0)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.checkpoint"


def test_a_saved_state_is_loaded_again(path):
    Checkpoint(path, "run").save("stage", STATE)
    found = Checkpoint(path, "run").load("stage")
    assert torch.equal(found["values"], STATE["values"])


@pytest.mark.usefixtures("full_disk")
def test_a_checkpoint_that_cannot_be_written_is_a_warning_with_the_path(path):
    checkpoint = Checkpoint(path, "run")
    with pytest.warns(RuntimeWarning, match=r"run\.checkpoint' could not be written \(.*too large"):
        checkpoint.save("stage", STATE)
    assert not checkpoint.due("stage")
    assert checkpoint.load("stage") is STATE
    assert list(path.parent.iterdir()) == []


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(path, request):
    Checkpoint(path, "run").save("stage", STATE)
    before = path.read_bytes()
    checkpoint = Checkpoint(path, "run")
    request.getfixturevalue("full_disk")
    with pytest.warns(RuntimeWarning, match="could not be written"):
        checkpoint.save("stage", {"values": torch.zeros(1000)})
    assert path.read_bytes() == before


def test_a_fit_continues_without_its_checkpoint(path, request):
    images = np.random.default_rng(0).random((20, 5, 5))
    options = {"n_inducing": 6, "lengthscale": 0.4, "position": False, "progress": False}
    options |= {"learn": ["variance"], "max_iter": 2}
    GCGPClassifier(**options).fit(images, np.arange(20) % 2)  # what Numba compiles is written to files, too
    model = GCGPClassifier(**options, checkpoint=path)
    request.getfixturevalue("full_disk")
    with pytest.warns(RuntimeWarning, match=r"run\.checkpoint' could not be written"):
        model.fit(images, np.arange(20) % 2)
    assert np.isfinite(model.predict_proba(images)).all()
    assert not path.exists()
