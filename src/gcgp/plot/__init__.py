"""Figures. Requires matplotlib."""
