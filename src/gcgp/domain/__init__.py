"""Domains and signals on them. Input: images, graphs, meshes. Output: `Signals` and the charts of domains.

A chart gives, for each vertex, its neighbors and their local coordinates (ρ, θ, …).
"""

from gcgp.domain.adapters.signals import as_signals
from gcgp.domain.base import Chart, Domains, Stencil
from gcgp.domain.graphs import Graphs
from gcgp.domain.grids import Grids
from gcgp.domain.meshes import Meshes
from gcgp.domain.points import Points
from gcgp.domain.signals import Signals
from gcgp.domain.subsets import Subsets
from gcgp.domain.superpixels import superpixels
from gcgp.mesh.mesh import Mesh

__all__ = [
    "Chart",
    "Domains",
    "Graphs",
    "Grids",
    "Mesh",
    "Meshes",
    "Points",
    "Signals",
    "Stencil",
    "Subsets",
    "as_signals",
    "superpixels",
]
