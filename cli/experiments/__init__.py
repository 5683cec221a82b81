"""Controlled experiments: trials, sweeps, tuning, and reports of what they measured."""
