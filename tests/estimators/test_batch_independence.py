"""The prediction for a signal does not depend on the other signals of the batch, whatever their values."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from gpytorch.kernels import MaternKernel, RBFKernel, RQKernel, ScaleKernel
from hypothesis import given, settings
from hypothesis import strategies as st

from gcgp import Dirichlet, GCGPClassifier, GCGPRegressor, Mesh, Patch, PatchKernel, Signals

FIXED: dict[str, Any] = {"patch": Patch(position=False), "likelihood": Dirichlet(alpha=0.01)}
"""Given, because a search takes most of the time of a fit."""
KERNELS: dict[str, Any] = {
    "rbf": "rbf",
    "matern12": "matern12",
    "matern32": "matern32",
    "matern52": "matern52",
    "scaled": ScaleKernel(MaternKernel(nu=2.5)),
    "sum": RBFKernel() + MaternKernel(nu=1.5),
    "product": RBFKernel() * MaternKernel(nu=2.5),
    "rational quadratic": RQKernel(),
}


def images(rng: np.random.Generator) -> Signals:
    return Signals.from_images(rng.normal(size=(40, 6, 6)).astype(np.float32))


def graphs(rng: np.random.Generator) -> Signals:
    sizes = rng.integers(3, 9, 40)
    return Signals.from_graphs(
        [rng.normal(size=(size, 2)) for size in sizes],
        [[[i, (i + 1) % size] for i in range(size)] for size in sizes],
    )


def meshes(rng: np.random.Generator) -> Signals:
    side = np.arange(4)
    corners = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    faces = [
        face
        for i in range(3)
        for j in range(3)
        for k in [4 * i + j]
        for face in ([k, k + 1, k + 4], [k + 1, k + 5, k + 4])
    ]
    curved = [
        Mesh(np.column_stack([corners, 0.3 * rng.normal(size=len(corners))]), np.array(faces))
        for _ in range(16)
    ]
    return Signals.on_meshes([rng.normal(size=len(corners)) for _ in curved], curved)


def scaled(signals: Signals, number: int, factor: float) -> Signals:
    values = signals.values.astype(np.float64)
    values[signals.offsets[number] : signals.offsets[number + 1]] *= factor
    return Signals(values.astype(signals.values.dtype), signals.offsets, signals.domains, signals.domain_of)


def fitted(make: Any, weighting: Any = "auto", **kernel: Any) -> tuple[GCGPClassifier, Signals]:
    signals = make(np.random.default_rng(0))
    labels = np.arange(len(signals)) % 2
    patch_kernel = PatchKernel(lengthscale=0.5, variance=100.0).set_params(**kernel)
    model = GCGPClassifier(weighting, kernel=patch_kernel, n_inducing=20, **FIXED)
    return model.fit(signals, labels), signals


def check_alone(model: GCGPClassifier, signals: Signals) -> None:
    """Probabilities and latent moments of all signals together are those of each signal alone."""
    together, (mean, std) = model.predict_proba(signals), model.predict_latent(signals, return_std=True)
    assert np.isfinite(together).all()
    assert np.isfinite(std).all()
    for n in range(len(signals)):
        np.testing.assert_allclose(together[n], model.predict_proba(signals[n])[0], atol=1e-5, rtol=0)
        alone_mean, alone_std = model.predict_latent(signals[n], return_std=True)
        np.testing.assert_allclose(mean[n], alone_mean[0], atol=1e-5 * max(1, np.abs(std[n]).max()))
        np.testing.assert_allclose(std[n], alone_std[0], rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_an_extreme_image_leaves_the_others_unchanged(kernel: str) -> None:
    model, signals = fitted(images, kind=KERNELS[kernel])
    for factor in (1e5, 1e8, 1e17):
        check_alone(model, scaled(signals[:5], 2, factor))


@pytest.mark.parametrize("kernel", ["rbf", "matern32", "matern12"])
@pytest.mark.parametrize("make", [graphs, meshes])
def test_an_extreme_graph_or_mesh_leaves_the_others_unchanged(make: Any, kernel: str) -> None:
    model, signals = fitted(make, kind=kernel)
    for factor in (1e5, 1e17):
        check_alone(model, scaled(signals[:5], 2, factor))


def test_an_extreme_image_leaves_the_others_unchanged_with_rotation_averages() -> None:
    for kernel in ("rbf", "matern52", "matern12"):
        model, signals = fitted(images, "polar", kind=kernel, rotation_average=True)
        for factor in (1e3, 1e5, 1e8):
            check_alone(model, scaled(signals[:5], 2, factor))


@cache
def default_model() -> GCGPClassifier:
    return GCGPClassifier(n_inducing=20).fit(images(np.random.default_rng(0)), np.arange(40) % 2)


@settings(max_examples=15, deadline=None)
@given(
    exponents=st.lists(st.floats(-15, 17), min_size=2, max_size=6),
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_batches_of_images_of_any_scales(exponents: list[float], seed: int, dtype: Any) -> None:
    model = default_model()
    rng = np.random.default_rng(seed)
    stack = np.stack([10.0**e * rng.normal(size=(6, 6)) for e in exponents]).astype(dtype)
    check_alone(model, Signals.from_images(stack))


def test_a_signal_far_from_the_training_signals_has_the_standard_deviation_of_the_prior() -> None:
    rng = np.random.default_rng(0)
    stack = rng.normal(size=(40, 6, 6))
    model = GCGPRegressor(n_inducing=20, patch=Patch(position=False)).fit(stack, stack[:, 0, 0])
    for factor in (1e5, 1e10, 1e17):
        _, std = model.predict_latent(stack[:3] * factor, return_std=True)
        np.testing.assert_allclose(std[:, 0], (model.variance_ / 36) ** 0.5, rtol=1e-3)
