"""Geodesics on triangle meshes. Input: a `Mesh`.

Output: distances by fast marching, straight rays, and polar coordinates around each vertex.
"""
