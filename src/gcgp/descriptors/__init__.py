"""Mesh descriptors as scikit-learn transformers. Input: a list of `Mesh`. Output: `Signals` on these meshes.

They depend only on the Laplace–Beltrami spectrum, so they are invariant to bending without stretching.
"""

from gcgp.descriptors.base import FittedValue, SpectralDescriptor
from gcgp.descriptors.spectral import GeometryVectors, HeatKernelSignature, WaveKernelSignature

__all__ = [
    "FittedValue",
    "GeometryVectors",
    "HeatKernelSignature",
    "SpectralDescriptor",
    "WaveKernelSignature",
]
