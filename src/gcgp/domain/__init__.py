"""Where signals live. Enters: arrays of images, graphs. Leaves: `Signals`, and the chart of each domain.

A chart says, for each vertex, which neighbours it sees and at which local coordinates (ρ, θ, …).
"""

from gcgp.domain.chart import Chart, Domains, Stencil
from gcgp.domain.graphs import Graphs
from gcgp.domain.grids import Grids
from gcgp.domain.signals import Signals
from gcgp.domain.superpixels import superpixels

__all__ = ["Chart", "Domains", "Graphs", "Grids", "Signals", "Stencil", "superpixels"]
