"""Patches: what each vertex sees. Input: signals and a weighting. Output: `Patches`, one row per vertex.

`Convolution` computes them, in runs of signals that fit a memory limit.
"""

from gcgp.patches.convolution import Convolution
from gcgp.patches.patches import Patches

__all__ = ["Convolution", "Patches"]
