"""Likelihoods: from latent functions to labels or targets.

`Dirichlet` and `Gaussian` have a closed-form posterior. `Softmax`, `RobustMax` and `Anchored` are for
variational inference. To add one, subclass `Likelihood` and register it in `LIKELIHOODS`.
"""

from gcgp.inference.likelihoods.anchored import Anchored
from gcgp.inference.likelihoods.base import Likelihood
from gcgp.inference.likelihoods.closed_form import ClosedFormLikelihood
from gcgp.inference.likelihoods.dirichlet import Dirichlet
from gcgp.inference.likelihoods.gaussian import Gaussian
from gcgp.inference.likelihoods.robust_max import RobustMax
from gcgp.inference.likelihoods.softmax import Softmax, expected_softmax, normal_draws

LIKELIHOODS: dict[str, type[Likelihood]] = {
    likelihood.name: likelihood for likelihood in (Dirichlet, Gaussian, Softmax, RobustMax, Anchored)
}

__all__ = [
    "LIKELIHOODS",
    "Anchored",
    "ClosedFormLikelihood",
    "Dirichlet",
    "Gaussian",
    "Likelihood",
    "RobustMax",
    "Softmax",
    "expected_softmax",
    "normal_draws",
]
