"""Where signals live. Enters: images, graphs, meshes. Leaves: `Signals`, and the chart of each domain.

A chart says, for each vertex, which neighbours it sees and at which local coordinates (ρ, θ, …).
"""

from gcgp.domain.chart import Chart, Domains, Stencil
from gcgp.domain.graphs import Graphs
from gcgp.domain.grids import Grids
from gcgp.domain.mesh.mesh import Mesh
from gcgp.domain.mesh.meshes import Meshes
from gcgp.domain.signals import Signals
from gcgp.domain.superpixels import superpixels

__all__ = ["Chart", "Domains", "Graphs", "Grids", "Mesh", "Meshes", "Signals", "Stencil", "superpixels"]
