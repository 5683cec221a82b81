"""Readers of text files: CSV, JSON Lines and Criteo TSV."""
