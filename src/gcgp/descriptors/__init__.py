"""Mesh descriptors."""
