"""Mesh files: OFF, OBJ, PLY and STL. Input: a path.

Output: a `Mesh`, or an error that names the file and what is wrong with it.
"""
