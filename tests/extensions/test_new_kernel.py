"""New kernels between patches: any GPyTorch kernel, and a kernel of the user's own."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, RQKernel, ScaleKernel

import gcgp
from evidence_checks import check_evidence_sums
from example_signals import bars
from gcgp import GCGPClassifier, PatchKernel, Runtime
from gcgp.weighting import Polar


class Cauchy(Kernel):
    """k(x, y) = 1 / (1 + |x − y|² / lengthscale²)."""

    has_lengthscale = True

    def forward(self, x1, x2, diag=False, **params):
        if diag:
            return torch.ones(x1.shape[:-1], dtype=x1.dtype)
        squares = self.covar_dist(x1 / self.lengthscale, x2 / self.lengthscale, square_dist=True, **params)
        return 1 / (1 + squares)


IMAGES, LABELS = bars(count=40, side=7)


def fitted(kernel):
    model = GCGPClassifier(Polar([1, 2], 4), kernel=kernel, n_inducing=20, runtime=Runtime(dtype="float64"))
    return model.fit(IMAGES[:24], LABELS[:24])


@pytest.fixture(scope="module")
def custom():
    return fitted(Cauchy())


@pytest.fixture(scope="module")
def rational_quadratic():
    kernel = RQKernel()
    kernel.alpha = 1.0  # 1 / (1 + |x − y|² / 2 lengthscale²)
    kernel.lengthscale = Cauchy().lengthscale.item() / 2**0.5
    return fitted(ScaleKernel(kernel))


def test_images_are_classified_and_explained(custom, rational_quadratic):
    for model in (custom, rational_quadratic):
        assert model.score(IMAGES[24:], LABELS[24:]) >= 0.9
        check_evidence_sums(model, IMAGES[24:], 1e-9)


def test_the_same_formula_gives_the_same_predictions():
    quadratic = RQKernel()
    quadratic.alpha = 1.0
    quadratic.lengthscale = Cauchy().lengthscale.item() / 2**0.5
    expected = fitted(PatchKernel(quadratic, variance=5.0)).predict_latent(IMAGES[24:])
    latent = fitted(PatchKernel(Cauchy(), variance=5.0)).predict_latent(IMAGES[24:])
    np.testing.assert_allclose(latent, expected, rtol=1e-5, atol=1e-7)


def test_a_model_with_a_gpytorch_kernel_can_be_saved_and_loaded(rational_quadratic, tmp_path):
    rational_quadratic.save(tmp_path / "model.gcgp")
    loaded = gcgp.load(tmp_path / "model.gcgp")
    expected = rational_quadratic.predict_proba(IMAGES[24:])
    np.testing.assert_array_equal(loaded.predict_proba(IMAGES[24:]), expected)


def test_saving_a_kernel_of_the_user_is_a_clear_error(custom, tmp_path):
    with pytest.raises(
        ValueError, match="a Cauchy cannot be written to a model file; those that can: RBFKernel"
    ):
        custom.save(tmp_path / "model.gcgp")
    assert not (tmp_path / "model.gcgp").exists()
