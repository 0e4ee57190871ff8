"""Numerical primitives that several stages share: ragged segments, a fast exponential, SplitMix64."""
