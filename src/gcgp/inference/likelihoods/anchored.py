"""A softmax beside the Gaussian targets of the closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gcgp._runtime.errors import check_positive
from gcgp.inference.likelihoods.dirichlet import Dirichlet
from gcgp.inference.likelihoods.softmax import Softmax
from gcgp.inference.shapes import Latent, Observed, PerSignal


@dataclass(eq=False, repr=False)
class Anchored(Softmax):
    """softmax(f)_yᵇ N(t_y | f, σ²_y): a softmax to the power b, times the targets of `Dirichlet`.

    With a softmax alone, signals that are classified with confidence contribute next to nothing; the targets
    give weight to all signals, as least squares does. It is not normalized over y.

    Args:
        alpha: α_ε of the targets; see `Dirichlet`.
        weight: b; `"auto"`: selected by leave-one-out likelihood. 0 is the closed form itself.
        draws, seed: See `Softmax`.
    """

    alpha: Any = "auto"
    weight: Any = "auto"
    name = "anchored"

    def validate(self) -> None:
        """Raise a ValueError that names the first field with an invalid value."""
        self.closed_form().validate()
        if self.weight != 0:
            check_positive("weight", self.weight)
        super().validate()

    def expected_log(self, mean: Latent, variance: Latent, targets: Observed) -> PerSignal:
        """The weighted sum of both parts."""
        anchor = self.closed_form().expected_log(mean, variance, targets)
        return self.weight * super().expected_log(mean, variance, targets) + anchor

    def sites(self, mean: Latent, variance: Latent, targets: Observed) -> tuple[PerSignal, Latent, Latent]:
        """The weighted sums of both parts."""
        softmax = super().sites(mean, variance, targets)
        anchor = self.closed_form().sites(mean, variance, targets)
        values, slope, precision = (self.weight * s + a for s, a in zip(softmax, anchor, strict=True))
        return values, slope, precision

    def closed_form(self) -> Dirichlet:
        """The targets."""
        return Dirichlet(self.alpha)
