"""A new family of weightings: cones."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import gcgp
from evidence_checks import check_evidence_sums
from example_signals import bars, rings_and_paths
from gcgp import GCGPClassifier, Learn, Patch, PatchKernel, Weighting


class Cone(Weighting):
    """Weights that decrease linearly from the center, one bin per radius."""

    coordinates = ("rho",)

    def __init__(self, radii, normalize=True):
        super().__init__(normalize)
        self.learnable("radii", radii, positive=True)

    @property
    def bins(self):
        return len(self.radii)

    @property
    def reach(self):
        return float(self.radii.max())

    def forward(self, rho):
        return torch.relu(1 - rho[:, None] / self.radii)


OPTIONS = {
    "n_inducing": 20,
    "kernel": PatchKernel(lengthscale=0.5, variance=10.0),
    "patch": Patch(position=False),
}


@pytest.fixture(scope="module")
def images_and_labels():
    images, _ = bars(count=30, side=7)
    return images * (1 + np.arange(30) % 2)[:, None, None], np.arange(30) % 2


@pytest.fixture(scope="module")
def model(images_and_labels):
    images, labels = images_and_labels
    return GCGPClassifier(Cone([1.5, 2.5]), **OPTIONS).fit(images[:20], labels[:20])


def test_images_are_classified_and_explained(model, images_and_labels):
    images, labels = images_and_labels
    assert model.score(images[20:], labels[20:]) == 1.0
    check_evidence_sums(model, images[20:], 1e-5)


def test_graphs_are_classified():
    signals, labels = rings_and_paths()
    model = GCGPClassifier(Cone([1.5, 2.5]), n_inducing=20, patch=Patch(bin_counts=True))
    assert model.fit(signals[:30], labels[:30]).score(signals[30:], labels[30:]) == 1.0


def test_a_saved_model_can_be_loaded(model, images_and_labels, tmp_path):
    images, _ = images_and_labels
    model.save(tmp_path / "model.gcgp")
    loaded = gcgp.load(tmp_path / "model.gcgp")
    np.testing.assert_array_equal(loaded.predict_proba(images), model.predict_proba(images))
    assert repr(loaded.weightings_[0]) == repr(Cone([1.5, 2.5]))


def test_its_parameters_can_be_learned(images_and_labels):
    images, labels = images_and_labels
    targets = labels + images[:, 3, 3] > 1.0
    model = GCGPClassifier(Cone([1.5, 2.5]), learn=Learn("radii", max_iter=2), **OPTIONS).fit(images, targets)
    assert {"zoom", "trial"} <= {step.stage for step in model.history_}
    assert model.start_weightings_[0].radii.tolist() == pytest.approx([1.5, 2.5])


def test_it_follows_the_parameter_contract(images_and_labels):
    images, labels = images_and_labels
    assert repr(clone(Cone([1.5]))) == repr(Cone([1.5])) == "Cone(radii=[1.5])"
    grid = {"weighting__radii": [[1.5], [1.5, 2.5]]}
    search = GridSearchCV(GCGPClassifier(Cone([2.0]), **OPTIONS), grid, cv=2).fit(images, labels)
    assert search.best_estimator_.weighting.radii.tolist() == search.best_params_["weighting__radii"]
