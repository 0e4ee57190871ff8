"""A softmax beside the Gaussian targets of the closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Num
from torch import Tensor

from gcgp._runtime.errors import check_positive
from gcgp.inference.likelihoods.base import Likelihood, SiteMoments
from gcgp.inference.likelihoods.dirichlet import Dirichlet
from gcgp.inference.likelihoods.softmax import Softmax


@dataclass(eq=False, repr=False)
class Anchored(Likelihood):
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
    draws: Any = 256
    seed: Any = 0
    name = "anchored"
    task = "classification"

    def validate(self) -> None:
        """Raise a ValueError that names the first field with an invalid value."""
        self.closed_form().validate()
        if self.weight != 0:
            check_positive("weight", self.weight)
        self.softmax().validate()

    def expected_log(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], targets: Num[Tensor, "n"]
    ) -> Float[Tensor, "n"]:
        """The weighted sum of both parts."""
        softmax, anchor = (part.expected_log(mean, variance, targets) for part in self._parts())
        return self._weight * softmax + anchor

    def sites(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"], targets: Num[Tensor, "n"]
    ) -> SiteMoments:
        """The weighted sums of those of both parts."""
        softmax, anchor = (part.sites(mean, variance, targets) for part in self._parts())
        values, slope, precision = (self._weight * s + a for s, a in zip(softmax, anchor, strict=True))
        return values, slope, precision

    def probabilities(
        self, mean: Float[Tensor, "n C"], variance: Float[Tensor, "n C"]
    ) -> Float[Tensor, "n C"]:
        """E softmax(f)."""
        return self.softmax().probabilities(mean, variance)

    def softmax(self) -> Softmax:
        """The softmax part."""
        return Softmax(self.draws, self.seed)

    def closed_form(self) -> Dirichlet:
        """The targets."""
        return Dirichlet(self.alpha)

    def predictive(self) -> Softmax:
        """The softmax alone."""
        return Softmax()

    @property
    def _weight(self) -> float:
        assert not isinstance(self.weight, str), "weight has to be selected first"
        return self.weight

    def _parts(self) -> tuple[Softmax, Dirichlet]:
        return self.softmax(), self.closed_form()
