"""The mathematics of ranking.

This package does no IO, reads no clock, awaits nothing and uses no global randomness. It imports
only numpy, numba and scipy. It computes in float64, on one thread, in strict IEEE arithmetic and
in a fixed order, so that the same input gives the same bits on any CPU.
"""
