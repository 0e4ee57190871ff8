"""Shapes of tensors in signatures: n signals, M features, C latent functions."""

from jaxtyping import Float, Num
from torch import Tensor

Scalar = Float[Tensor, ""]
PerSignal = Float[Tensor, "n"]
Observed = Num[Tensor, "n"]
"""Labels as integers, or regression targets."""
Latent = Float[Tensor, "n C"]
Rows = Float[Tensor, "n M"]
"""Features of signals."""
Matrix = Float[Tensor, "M M"]
