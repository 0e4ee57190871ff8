"""Choosing what the user did not specify."""
