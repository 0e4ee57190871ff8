"""Model files. Loading one never executes code."""
