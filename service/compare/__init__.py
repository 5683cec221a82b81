"""Comparison of jobs: their differing settings and final figures."""
