"""What each vertex sees. Enters: signals and a weighting. Leaves: `Patches`, one row a vertex.

`Convolution` makes them, in chunks that fit a memory limit.
"""

from gcgp.patches.convolution import Convolution
from gcgp.patches.patches import Patches

__all__ = ["Convolution", "Patches"]
