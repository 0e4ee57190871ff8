"""A check of evidence that tests of several folders use."""

import numpy as np


def check_evidence_sums(model, X, tolerance):
    """The evidence of the vertices of each signal sums to its latent mean, relative to the largest mean."""
    evidence = model.evidence(X)
    latent, latent_std = model.predict_latent(X, return_std=True)
    starts = evidence.offsets[:-1]
    scale = np.abs(latent).max()
    np.testing.assert_allclose(np.add.reduceat(evidence.mean, starts), latent, atol=tolerance * scale)
    assert (evidence.std >= 0).all()
    # The standard deviation of a sum is at most the sum of the standard deviations.
    assert (latent_std <= np.add.reduceat(evidence.std, starts) * (1 + 1e-3) + 1e-6).all()
