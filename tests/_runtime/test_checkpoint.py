"""Checkpoints: states on disk under keys, other fits, and files that cannot be written."""

import numpy as np
import pytest
import torch

from gcgp import GCGPClassifier, Learn, Patch, PatchKernel, Runtime
from gcgp._runtime.checkpoint import Checkpoint

STATE = {"values": torch.arange(1000.0)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.checkpoint"


def test_a_saved_state_is_loaded(path):
    checkpoint = Checkpoint(path, "fit")
    checkpoint.save("learn/1", STATE)
    checkpoint.save("svgp", {"step": torch.tensor(3)})
    loaded = Checkpoint(path, "fit")
    assert torch.equal(loaded.load("learn/1")["values"], STATE["values"])
    assert int(loaded.load("svgp")["step"]) == 3
    assert loaded.load("learn") is None


def test_keys_are_due_separately(path):
    checkpoint = Checkpoint(path, "fit")
    checkpoint.save("a", STATE)
    assert not checkpoint.due("a")
    assert checkpoint.due("b")
    checkpoint.interval = 0.0
    assert checkpoint.due("a")


def test_other_files_raise_and_are_left_unchanged(path):
    Checkpoint(path, "one fit").save("key", STATE)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"fit\.checkpoint' is of another fit"):
        Checkpoint(path, "another fit")
    assert path.read_bytes() == before
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"fit\.checkpoint': not a checkpoint of gcgp"):
        Checkpoint(path, "one fit")


@pytest.mark.usefixtures("full_disk")
def test_a_checkpoint_that_cannot_be_written_is_a_warning_with_the_path(path):
    checkpoint = Checkpoint(path, "fit")
    with pytest.warns(RuntimeWarning, match=r"fit\.checkpoint' could not be written \(.*too large"):
        checkpoint.save("key", STATE)
    assert not checkpoint.due("key")
    assert checkpoint.load("key") is STATE
    assert list(path.parent.iterdir()) == []


def test_a_checkpoint_that_cannot_be_written_leaves_the_previous_one(path, request):
    Checkpoint(path, "fit").save("key", STATE)
    before = path.read_bytes()
    checkpoint = Checkpoint(path, "fit")
    request.getfixturevalue("full_disk")
    with pytest.warns(RuntimeWarning, match="could not be written"):
        checkpoint.save("key", {"values": torch.zeros(1000)})
    assert path.read_bytes() == before


def test_a_fit_continues_without_its_checkpoint(path, request):
    images, labels = np.random.default_rng(0).random((20, 5, 5)), np.arange(20) % 2
    model = GCGPClassifier(
        kernel=PatchKernel(lengthscale=0.4),
        patch=Patch(position=False),
        n_inducing=6,
        learn=Learn(["variance"], max_iter=2),
        runtime=Runtime(progress=False),
    )
    model.fit(images, labels)  # Numba also writes files, of compiled loops
    model.set_params(runtime__checkpoint=path)
    request.getfixturevalue("full_disk")
    with pytest.warns(RuntimeWarning, match=r"fit\.checkpoint' could not be written"):
        model.fit(images, labels)
    assert np.isfinite(model.predict_proba(images)).all()
    assert not path.exists()
