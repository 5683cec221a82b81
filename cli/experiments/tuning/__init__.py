"""Tuning of a job by successive halving: short runs of many settings, longer runs of the best of them."""
