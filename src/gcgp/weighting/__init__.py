"""Weightings of neighbors. Input: local coordinates of pairs. Output: weights `[pairs, bins]`.

Patches are linear in the signal; most families have parameters that can be learned.
"""

from gcgp.weighting.base import Weighting
from gcgp.weighting.box import Box
from gcgp.weighting.mixture import GaussianMixture
from gcgp.weighting.polar import Anisotropic, GeodesicPolar, Polar, Radial

__all__ = ["Anisotropic", "Box", "GaussianMixture", "GeodesicPolar", "Polar", "Radial", "Weighting"]
