"""Checkpoints: everything a run is, written by all ranks together, and read by as many as there are then."""

from dlrm.checkpoint.errors import CheckpointError, checkpoint_errors

__all__ = ["CheckpointError", "checkpoint_errors"]
