"""The convolutional GP on twelve digits, figure by figure as GPflow computes it.

GCGP_GPFLOW_REFERENCE names another file of the same format: other images, patches, sizes and scales.
"""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from gcgp.domain import Signals
from gcgp.inference import Features, Statistics, Term
from gcgp.inference.likelihoods import Gaussian, RobustMax
from gcgp.inference.svgp import FreePosterior
from gcgp.kernel import ConvolutionalKernel
from gcgp.patches import Convolution
from gcgp.weighting import Box

BUNDLED = Path(__file__).parent / "data" / "gpflow_convolutional_svgp.npz"
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}
ROUNDING = {torch.float64: 1e-12, torch.float32: 3e-7}


@pytest.fixture(scope="module")
def reference():
    with np.load(os.environ.get("GCGP_GPFLOW_REFERENCE", BUNDLED)) as file:
        return dict(file)


@pytest.fixture(params=[torch.float64, torch.float32], ids=["float64", "float32"])
def dtype(request):
    return request.param


@pytest.fixture(params=["", "weighted_"], ids=["plain", "weighted"])
def prefix(request):
    return request.param


@pytest.fixture
def kernel(reference, dtype, prefix):
    base = ScaleKernel(RBFKernel()).double()
    base.base_kernel.lengthscale = torch.from_numpy(reference["lengthscale"])
    base.outputscale = torch.from_numpy(reference["variance"])
    weights = torch.from_numpy(reference["patch_weights"]) if prefix else None
    return ConvolutionalKernel(base, aggregate="mean", vertex_weights=weights).to(dtype)


@pytest.fixture
def convolution(reference, dtype):
    return Convolution(Box(int(reference["patch_side"])), dtype=dtype)


@pytest.fixture
def inducing(reference, dtype):
    return torch.from_numpy(reference["inducing_patches"]).to(dtype)


def agree(ours, theirs, dtype, scale=None):
    """Equal up to rounding relative to the scale of the values, which is the largest of them unless given."""
    theirs = torch.from_numpy(np.asarray(theirs))
    scale = float(theirs.abs().max()) if scale is None else scale
    torch.testing.assert_close(
        ours.detach().double(), theirs, rtol=TOLERANCE[dtype], atol=ROUNDING[dtype] * scale
    )


@pytest.fixture
def amplified(reference, prefix):
    """By how much whitening enlarges the rounding of kernel values, and the largest prior variance."""
    kuu = reference["Kuu"] + float(reference["jitter"]) * np.eye(len(reference["Kuu"]))
    return float(np.linalg.cond(kuu)) ** 0.5, float(reference[prefix + "Kff_diag"].max())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad], ids=["fused", "gradient"])
def test_kernel_matrices(reference, kernel, convolution, inducing, dtype, prefix, mode):
    signals = Signals.from_images(reference["images"])
    whole = (mode, dtype) == (torch.no_grad, torch.float64)
    columns = len(reference["images"]) if whole else 3  # the rest takes long
    with mode():
        patches = kernel.weighted(convolution.patches(signals)).distinct()
        kuu, kfu = kernel.kuu(inducing), kernel.kfu(patches, inducing)
        kff, diagonal = kernel.kff(patches, patches[:columns]), kernel.kff_diagonal(patches)
    assert all(m.requires_grad == (mode is torch.enable_grad) for m in (kuu, kfu, kff, diagonal))
    agree(kuu, reference[prefix + "Kuu"], dtype)
    agree(kfu.T, reference[prefix + "Kuf"], dtype)
    agree(kff, reference[prefix + "Kff"][:, :columns], dtype)
    agree(diagonal, reference[prefix + "Kff_diag"], dtype)


def test_kernel_matrices_without_merging(reference, kernel, convolution, inducing, dtype, prefix):
    with torch.no_grad():
        patches = kernel.weighted(convolution.patches(Signals.from_images(reference["images"])))
        count, height, width = reference["images"].shape
        side = int(reference["patch_side"])
        assert len(patches.values) == count * (height - side + 1) * (width - side + 1)
        agree(kernel.kfu(patches, inducing).T, reference[prefix + "Kuf"], dtype)
        agree(kernel.kff_diagonal(patches), reference[prefix + "Kff_diag"], dtype)


@pytest.mark.parametrize("memory", [1, 10**9], ids=["image by image", "all at once"])
def test_collapsed_bound_and_predictions(
    reference, kernel, convolution, inducing, dtype, prefix, amplified, memory
):
    # `jitter` was added as it is; a term multiplies its jitter by the mean of Kuu's diagonal.
    jitter = float(reference["jitter"] / reference["variance"])
    features = Features([Term(convolution, kernel, inducing, jitter)], memory)
    targets = torch.from_numpy((reference["labels"] - 4.5) / 3)
    statistics = Statistics.empty(1, features.size)
    chunks = list(features.chunks(Signals.from_images(reference["images"])))
    for chunk in chunks:
        t = targets[chunk.run]
        statistics.add(chunk.features, torch.zeros(len(t), dtype=torch.int64), t, chunk.residual)
    likelihood = Gaussian(float(reference["noise_variance"]))
    bound = likelihood.bound(statistics, 1.0)
    posterior = likelihood.posterior(statistics, 1.0)
    predictions = [posterior.predict(chunk.features, chunk.residual) for chunk in chunks]
    condition, prior = amplified
    means, variances = (torch.cat(parts) for parts in zip(*predictions, strict=True))
    agree(bound, reference[prefix + "sgpr_bound"], dtype, condition * abs(bound.item()))
    agree(means, reference[prefix + "sgpr_f_mean"], dtype, condition * float(targets.abs().max()))
    agree(variances, reference[prefix + "sgpr_f_var"], dtype, condition * prior)


def test_gradient_of_the_bound_agrees_with_differences(reference):
    """The differentiable path through Kuu, Kuf and the diagonal, against differences of the bound."""
    signals = Signals.from_images(reference["images"][:4])
    side = int(reference["patch_side"])
    patches = Convolution(Box(side), dtype=torch.float64).patches(signals).distinct()
    inducing = torch.from_numpy(reference["inducing_patches"][:6])
    targets = torch.from_numpy((reference["labels"][:4] - 4.5) / 3)
    noise = float(reference["noise_variance"])
    kernel = ConvolutionalKernel(RBFKernel().double(), aggregate="mean")

    def bound(lengthscale):
        kernel.base.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
        weighted = kernel.weighted(patches)
        root = torch.linalg.cholesky(kernel.kuu(inducing) + 1e-6 * torch.eye(len(inducing)))
        kfu = kernel.kfu(weighted, inducing)
        features = torch.linalg.solve_triangular(root, kfu.T, upper=False).T
        residual = kernel.kff_diagonal(weighted) - features.square().sum(dim=1)
        covariance = features @ features.T + noise * torch.eye(len(targets))
        normal = torch.distributions.MultivariateNormal(torch.zeros_like(targets), covariance)
        return normal.log_prob(targets) - 0.5 * residual.sum() / noise

    at = float(reference["lengthscale"])
    step = 1e-4 * at
    bound(at).backward()
    raw = kernel.base.raw_lengthscale
    slope = raw.grad.item() / torch.sigmoid(raw).item()
    with torch.no_grad():
        difference = (bound(at + step) - bound(at - step)).item() / (2 * step)
    assert slope == pytest.approx(difference, rel=1e-5)


@pytest.mark.parametrize("converted", [False, True], ids=["free", "posterior"])
@pytest.mark.parametrize("name", ["gaussian", "robustmax"])
def test_variational_bound_divergence_and_predictions(
    reference, kernel, convolution, inducing, dtype, prefix, amplified, name, converted
):
    jitter = float(reference["jitter"] / reference["variance"])
    features = Features([Term(convolution, kernel, inducing, jitter)], 10**9)
    (chunk,) = features.chunks(Signals.from_images(reference["images"]))
    labels, classes = torch.from_numpy(reference["labels"]), reference["q_mu"].shape[1]
    latents, targets, likelihood = {
        "gaussian": (1, (labels - 4.5) / 3, Gaussian(float(reference["noise_variance"]))),
        "robustmax": (classes, labels, RobustMax()),
    }[name]
    free = FreePosterior.prior(features.size, latents, torch.zeros((), dtype=torch.float64))
    with torch.no_grad():
        free.distribution.variational_mean.copy_(torch.from_numpy(reference["q_mu"].T[:latents]))
        free.distribution.chol_variational_covar.copy_(torch.from_numpy(reference["q_sqrt"][:latents]))
    posterior = free.to_posterior() if converted else free
    mean, variance = posterior.predict(chunk.features, chunk.residual)
    scale = float(reference["num_data"]) / len(labels)
    bound = scale * likelihood.expected_log(mean, variance, targets).sum() - posterior.divergence()
    condition, prior = amplified
    weight = float(np.linalg.norm(reference["q_mu"], axis=0).max())
    spread = max(1.0, float(np.linalg.norm(reference["q_sqrt"], ord=2, axis=(1, 2)).max()) ** 2)
    agree(mean, reference[f"{prefix}{name}_f_mean"], dtype, condition * weight * prior**0.5)
    agree(variance, reference[f"{prefix}{name}_f_var"], dtype, condition * spread * prior)
    agree(posterior.divergence(), reference[f"{prefix}{name}_kl"], dtype)
    agree(bound, reference[f"{prefix}{name}_elbo"], dtype, condition * abs(bound.item()))
