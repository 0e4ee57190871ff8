"""What is learned. Enters: kernels, patches, labels. Leaves: the posterior of every latent function.

With inducing patches fixed the GP is a Bayesian linear model on features Φ = chol(Kuu)⁻¹Kuf: `features` makes
them, `statistics` sums them up, `posterior` solves, `dirichlet` and `gaussian` are the two likelihoods.
"""

from gcgp.inference.dirichlet import DirichletClassification
from gcgp.inference.features import Features, Term
from gcgp.inference.gaussian import GaussianRegression
from gcgp.inference.posterior import Posterior
from gcgp.inference.statistics import Statistics

__all__ = [
    "DirichletClassification",
    "Features",
    "GaussianRegression",
    "Posterior",
    "Statistics",
    "Term",
]
