"""How alike two signals are. Enters: patches. Leaves: Kuu, Kuf, Kff and its diagonal.

`sums` is the one place where a base kernel is summed over patches; `inducing` chooses inducing patches.
"""

from gcgp.kernel.base import base_kernel
from gcgp.kernel.convolutional import ConvolutionalKernel
from gcgp.kernel.inducing import choose_inducing
from gcgp.kernel.rotation_average import RotationAverage

__all__ = ["ConvolutionalKernel", "RotationAverage", "base_kernel", "choose_inducing"]
