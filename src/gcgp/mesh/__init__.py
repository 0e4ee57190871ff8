"""Triangle meshes. Input: vertices and faces, or files. Output: `Mesh`, its spectrum and geodesics.

Meshes may have defects: `Mesh.report` lists them, and nothing is repaired silently.
"""

from gcgp.mesh.mesh import Mesh

__all__ = ["Mesh"]
