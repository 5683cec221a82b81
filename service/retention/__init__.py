"""Retention: which jobs that have ended are removed by themselves, and when."""
