"""THE CORE: the mathematics of ranking, and nothing else.

Nothing in this folder does IO, reads a clock, awaits, or draws from global randomness; it imports
numpy, numba and scipy only. What it computes it computes in float64, on one thread, in strict
IEEE arithmetic and in a fixed order, so that the same input gives the same bits on any CPU.
"""
