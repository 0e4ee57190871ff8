"""Data to try models on."""
