"""Where signals live. Enters: images, graphs, meshes. Leaves: `Signals`, and the chart of each domain.

A chart says, for each vertex, which neighbors it sees and at which local coordinates (ρ, θ, …).
"""

from gcgp.domain.base import Chart, Domains, Stencil
from gcgp.domain.graphs import Graphs
from gcgp.domain.grids import Grids
from gcgp.domain.meshes import Meshes
from gcgp.domain.signals import Signals
from gcgp.domain.superpixels import superpixels
from gcgp.mesh.mesh import Mesh

__all__ = ["Chart", "Domains", "Graphs", "Grids", "Mesh", "Meshes", "Signals", "Stencil", "superpixels"]
