"""How neighbors are weighed. Enters: local coordinates of pairs. Leaves: weights `[pairs, bins]`.

Every family is linear in the signal and may have parameters that can be learned.
"""

from gcgp.weighting.base import Weighting
from gcgp.weighting.box import Box
from gcgp.weighting.mixture import Anisotropic, GaussianMixture
from gcgp.weighting.polar import GeodesicPolar, Polar, Radial

__all__ = ["Anisotropic", "Box", "GaussianMixture", "GeodesicPolar", "Polar", "Radial", "Weighting"]
