"""The kernel between signals. Input: patches and a base kernel. Output: Kuu, Kfu, Kff and its diagonal.

`sums` has the formulas, `engine` their fast computation, and `inducing` selects inducing patches.
"""

from gcgp.kernel.base import base_kernel
from gcgp.kernel.convolutional import ConvolutionalKernel
from gcgp.kernel.inducing import choose_inducing
from gcgp.kernel.rotation_average import RotationAverage

__all__ = ["ConvolutionalKernel", "RotationAverage", "base_kernel", "choose_inducing"]
