"""Geodesic distances, rays and polar coordinates on triangle meshes."""
