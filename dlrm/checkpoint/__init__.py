"""Checkpoints: the whole state of a run, written by all ranks together, and read by any number of ranks."""

from dlrm.checkpoint.errors import CheckpointError, translate_checkpoint_errors

__all__ = ["CheckpointError", "translate_checkpoint_errors"]
