"""Sweeps: controlled experiments over fields of a job document, whose every finished trial is a line of a file."""
