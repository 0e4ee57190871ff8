"""Layers: signals become signals whose channels are features of patches. Input and output: signals.

`Layer` is what users specify, `FittedLayer` maps signals, `LayeredConvolution` computes the patches.
"""

from gcgp.layers.convolution import LayeredConvolution
from gcgp.layers.fitted import FittedLayer
from gcgp.layers.layer import Layer, fit_layers

__all__ = ["FittedLayer", "Layer", "LayeredConvolution", "fit_layers"]
