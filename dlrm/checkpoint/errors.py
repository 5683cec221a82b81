"""The error of a checkpoint that could not be written or read."""


class CheckpointError(OSError):
    """Error of a checkpoint that could not be written or read; the message names its directory and the first cause."""
