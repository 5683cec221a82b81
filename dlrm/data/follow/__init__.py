"""Rows of a growing set of files: which files are ready, what is prepared of them, and the rows of all together."""
