"""The convolutional GP by dense matrices in float64, with the fields of the reference file of GPflow."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.stats import multivariate_normal, norm

EPSILON = 1e-3
"""Of the robust-max likelihood."""


def svgp_reference(
    seed, *, images=None, side=3, inducing=7, classes=4, scale=1.0, lengthscale=0.7, num_data=500
):
    """The fields for some images, five of random values unless given; the GP variance is 2.3 `scale`."""
    rng = np.random.default_rng(seed)
    if images is None:
        images = rng.random((5, 9, 8)) * (rng.random((5, 9, 8)) < 0.6)
    count = len(images)
    labels = rng.integers(classes, size=count)
    windows = sliding_window_view(images, (side, side), axis=(1, 2)).reshape(count, -1, side**2)
    distinct = np.unique(windows.reshape(-1, side**2), axis=0)
    factors = np.tril(0.2 * rng.standard_normal((classes, inducing, inducing)))
    factors[:, range(inducing), range(inducing)] = rng.uniform(0.3, 0.9, (classes, inducing))
    fields = {
        "images": images,
        "labels": labels,
        "patch_side": np.array(side),
        "lengthscale": np.array(lengthscale),
        "variance": np.array(2.3 * scale),
        "noise_variance": np.array(0.3),
        "inducing_patches": distinct[rng.permutation(len(distinct))[:inducing]],
        "q_mu": rng.standard_normal((inducing, classes)),
        "q_sqrt": factors,
        "patch_weights": rng.uniform(0.2, 1.8, windows.shape[1]),
        "jitter": np.array(1e-6 * scale),
        "num_data": np.array(num_data),
    }
    for prefix, weights in (("", np.ones(windows.shape[1])), ("weighted_", fields["patch_weights"])):
        fields |= {
            prefix + name: value for name, value in _reference_values(fields, windows, weights).items()
        }
    return fields


def _reference_values(fields, windows, weights):
    variance, lengthscale = float(fields["variance"]), float(fields["lengthscale"])
    noise, points = float(fields["noise_variance"]), fields["inducing_patches"]

    def kernel(a, b):
        squares = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)
        return variance * np.exp(-0.5 * squares / lengthscale**2)

    mean = weights / len(weights)
    kuu = kernel(points, points)
    kuf = np.stack([kernel(points, patches) @ mean for patches in windows], axis=1)
    kff = np.array([[mean @ kernel(a, b) @ mean for b in windows] for a in windows])
    root = np.linalg.cholesky(kuu + float(fields["jitter"]) * np.eye(len(points)))
    phi = np.linalg.solve(root, kuf).T
    residual = np.diag(kff) - (phi**2).sum(axis=1)
    targets = (fields["labels"] - 4.5) / 3
    covariance = phi @ phi.T + noise * np.eye(len(phi))
    bound = multivariate_normal.logpdf(targets, np.zeros(len(phi)), covariance) - residual.sum() / (2 * noise)
    precision = phi.T @ phi + noise * np.eye(len(points))
    solved = np.linalg.solve(precision, phi.T)
    values = {
        "Kuu": kuu,
        "Kuf": kuf,
        "Kff": kff,
        "Kff_diag": np.diag(kff),
        "sgpr_bound": np.array(bound),
        "sgpr_f_mean": (phi @ np.linalg.solve(precision, phi.T @ targets))[:, None],
        "sgpr_f_var": (residual + noise * (phi * solved.T).sum(axis=1))[:, None],
    }
    for name, latents in (("gaussian", 1), ("robustmax", fields["q_mu"].shape[1])):
        mu, sqrt = fields["q_mu"][:, :latents], fields["q_sqrt"][:latents]
        f_mean = phi @ mu
        f_var = residual[:, None] + np.stack([((phi @ factor) ** 2).sum(axis=1) for factor in sqrt], axis=1)
        logs = 2 * np.log(np.diagonal(sqrt, axis1=1, axis2=2)).sum()
        kl = 0.5 * ((mu**2).sum() + (sqrt**2).sum() - mu.size - logs)
        if name == "gaussian":
            fit = norm.logpdf(targets, f_mean[:, 0], noise**0.5) - f_var[:, 0] / (2 * noise)
        else:
            fit = _robust_max(f_mean, f_var, fields["labels"])
        scale = float(fields["num_data"]) / len(phi)
        values |= {
            f"{name}_f_mean": f_mean,
            f"{name}_f_var": f_var,
            f"{name}_kl": np.array(kl),
            f"{name}_elbo": np.array(scale * fit.sum() - kl),
        }
    return values


def _robust_max(mean, variance, labels):
    """E log p(y | f) by 20-point Gauss–Hermite quadrature; GPflow keeps probabilities off 0 and 1."""
    x, w = np.polynomial.hermite.hermgauss(20)
    expected = []
    for m, v, y in zip(mean, variance, labels, strict=True):
        at = m[y] + np.sqrt(2 * v[y]) * x
        below = norm.cdf((at[:, None] - m) / np.sqrt(v)) * (1 - 2e-6) + 1e-6
        right = w @ np.delete(below, y, axis=1).prod(axis=1) / np.sqrt(np.pi)
        expected.append(right * np.log(1 - EPSILON) + (1 - right) * np.log(EPSILON / (len(m) - 1)))
    return np.array(expected)
