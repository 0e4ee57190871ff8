"""Triangle meshes. Enters: vertices and faces, or files. Leaves: `Mesh`, and geodesic charts of its vertices.

Meshes may be dirty: what is wrong with one is reported, and nothing is changed silently.
"""

from gcgp.mesh.mesh import Mesh

__all__ = ["Mesh"]
