"""A new kind of domain: image grids whose opposite borders are joined (tori)."""

from dataclasses import dataclass

import numpy as np
import pytest

import gcgp
from evidence_checks import check_evidence_sums
from gcgp import Domains, GCGPClassifier, GCGPRegressor, PatchKernel, Signals
from gcgp.domain import Chart
from gcgp.weighting import Polar, Radial


@dataclass(frozen=True, eq=False)
class Tori(Domains):
    """Tori of pixels, given by height and width; vertices are numbered row by row."""

    shapes: np.ndarray

    coordinate_pattern = "rho|theta"

    @property
    def vertex_counts(self):
        return self.shapes.prod(axis=1)

    def take(self, indices):
        return Tori(self.shapes[indices])

    @classmethod
    def concatenate(cls, parts):
        ends = np.cumsum([len(part) for part in parts])
        return cls(np.concatenate([part.shapes for part in parts])), np.split(np.arange(ends[-1]), ends[:-1])

    def arrays(self):
        return [self.shapes]

    def vertex_shape(self, domain):
        return tuple(self.shapes[domain].tolist())

    def chart(self, coordinates, reach, kind="auto", rows=None):
        """All pixels with ρ ≤ reach, where ρ is the larger of the distances in rows and columns."""
        counts, neighbors, columns = [0], [], {"rho": [], "theta": []}
        for height, width in self.shapes:
            row, column = np.indices((height, width)).reshape(2, -1)
            y = (row - row[:, None] + height // 2) % height - height // 2
            x = (column - column[:, None] + width // 2) % width - width // 2
            rho = np.maximum(abs(y), abs(x)).astype(float)
            near = rho <= reach
            counts.extend(near.sum(axis=1))
            neighbors.append(np.nonzero(near)[1])
            columns["rho"].append(rho[near])
            columns["theta"].append(np.where(rho == 0, np.nan, np.arctan2(y, x))[near])
        chosen = {name: np.concatenate(columns[name]) for name in coordinates}
        chart = Chart(np.cumsum(counts), np.concatenate(neighbors), chosen)
        return chart if rows is None else chart.restricted(rows)


def on_tori(images):
    """Signals on tori from images `[N, H, W]`."""
    count, height, width = images.shape
    offsets = np.arange(count + 1) * height * width
    shape = np.array([[height, width]])
    return Signals(images.reshape(-1, 1), offsets, Tori(shape), np.zeros(count, dtype=np.int64))


def bars(count=30, seed=0):
    """A horizontal (class 0) or vertical (class 1) bar of three pixels anywhere on a torus."""
    rng = np.random.default_rng(seed)
    images, labels = 0.1 * rng.random((count, 6, 7)), np.arange(count) % 2
    for image, label in zip(images, labels, strict=True):
        image[(0, slice(3)) if label == 0 else (slice(3), 0)] += 1.0
        image[:] = np.roll(image, rng.integers(6, size=2), axis=(0, 1))
    return images, labels


IMAGES, LABELS = bars()
TRAINING, UNSEEN = on_tori(IMAGES[:20]), on_tori(IMAGES[20:])


@pytest.fixture(scope="module")
def model():
    return GCGPClassifier(Polar([1.0], 4), n_inducing=20).fit(TRAINING, LABELS[:20])


def test_a_model_can_be_fitted_with_the_defaults():
    model = GCGPClassifier(n_inducing=20).fit(TRAINING, LABELS[:20])
    assert isinstance(model.weightings_[0], Radial)  # without positions, the default has no directions
    assert model.domain_ == "Tori"
    assert model.predict_proba(UNSEEN).shape == (10, 2)


def test_signals_are_classified(model):
    assert model.score(UNSEEN, LABELS[20:]) == 1.0


def test_predictions_are_invariant_to_shifts_around_the_torus(model):
    expected = model.predict_proba(UNSEEN)
    shifted = on_tori(np.roll(IMAGES[20:], (2, 3), axis=(1, 2)))
    np.testing.assert_allclose(model.predict_proba(shifted), expected, atol=1e-5)


def test_evidence_has_the_shape_of_the_grid_and_sums_to_the_latent_function(model):
    check_evidence_sums(model, UNSEEN, 1e-5)
    mean, _ = model.evidence(UNSEEN)[0]
    shifted, _ = model.evidence(on_tori(np.roll(IMAGES[20:], (2, 3), axis=(1, 2))))[0]
    assert mean.shape == (6, 7, 2)
    np.testing.assert_allclose(shifted, np.roll(mean, (2, 3), axis=(0, 1)), atol=1e-5)


def test_a_saved_model_can_be_loaded(model, tmp_path):
    model.save(tmp_path / "model.gcgp")
    loaded = gcgp.load(tmp_path / "model.gcgp")
    np.testing.assert_array_equal(loaded.predict_proba(UNSEEN), model.predict_proba(UNSEEN))
    np.testing.assert_array_equal(loaded.evidence(UNSEEN).mean, model.evidence(UNSEEN).mean)


def test_loading_without_the_class_is_a_clear_error(model, tmp_path, monkeypatch):
    model.save(tmp_path / "model.gcgp")
    monkeypatch.delitem(Domains.kinds, "Tori")
    with pytest.raises(ValueError, match=r"Tori.*import the module that defines the domain"):
        gcgp.load(tmp_path / "model.gcgp")


def test_other_domains_are_refused(model):
    with pytest.raises(ValueError, match="X: signals on grids, but training had tori"):
        model.predict(IMAGES)


def test_tori_of_different_sizes_and_regression():
    images, _ = bars(count=24, seed=1)
    signals = Signals.concatenate([on_tori(images[:12]), on_tori(images[12:, :5, :6].copy())])
    targets = np.array([signal.values.max() for signal in signals])
    kernel = PatchKernel(lengthscale=0.5, variance=1.0)
    model = GCGPRegressor(Radial([0.0, 1.0]), n_inducing=15, kernel=kernel).fit(signals, targets)
    check_evidence_sums(model, signals, 1e-5)
    assert [model.evidence(signals)[n][0].shape for n in (0, -1)] == [(6, 7, 1), (5, 6, 1)]
