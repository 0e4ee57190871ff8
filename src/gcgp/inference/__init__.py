"""Inference. Input: terms (convolution, kernel, inducing patches), signals, labels. Output: the posterior.

With inducing patches fixed, the GP is a Bayesian linear model on features Φ = Kfu chol(Kuu)⁻ᵀ: `features`
computes them, `statistics` sums them up, `posterior` solves; see also `likelihoods` and `methods`.
"""

from gcgp.inference.features import Features, Term
from gcgp.inference.posterior import Posterior
from gcgp.inference.statistics import Statistics

__all__ = ["Features", "Posterior", "Statistics", "Term"]
