"""Serving of /rank: the weights in memory, and the impression writer."""
