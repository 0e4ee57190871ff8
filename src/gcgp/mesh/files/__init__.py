"""Readers of mesh files: OFF, OBJ, PLY and STL."""
