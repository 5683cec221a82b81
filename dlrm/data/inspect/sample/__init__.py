"""Samples of the rows of files that have no schema yet."""
