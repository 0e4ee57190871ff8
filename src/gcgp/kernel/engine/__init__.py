"""Fast sums over patches. Input: a base kernel and patches. Output: sums per signal, differentiable.

Blocks that fit the cache, threads, compiled loops, and float64 where float32 is not accurate enough.
"""
