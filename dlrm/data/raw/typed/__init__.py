"""Readers of typed files: Parquet and Arrow IPC."""
