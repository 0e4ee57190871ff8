"""Blocked, threaded and compiled sums of base kernels over patches."""
