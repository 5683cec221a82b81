"""Checkpoints: the whole state of a run, written by all ranks together, and read by any number of ranks."""

from dlrm.checkpoint.errors import CheckpointError

__all__ = ["CheckpointError"]
