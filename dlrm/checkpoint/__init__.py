"""Checkpoints: the whole state of a run, written by all ranks together, and read by any number of ranks."""


class CheckpointError(OSError):
    """Error of a checkpoint that could not be written or read; the message names its directory and the first cause."""
