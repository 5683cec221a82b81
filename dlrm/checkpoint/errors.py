"""The error of a checkpoint that could not be written or read."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch.distributed.checkpoint.api import CheckpointException


class CheckpointError(OSError):
    """Error of a checkpoint that could not be written or read; the message names its directory and the first cause."""


@contextmanager
def translate_checkpoint_errors(path: Path, failure: str) -> Iterator[None]:
    """Turn torch's CheckpointException, which is not an `Exception` and has the causes by rank, into a CheckpointError.

    failure: the failure in words, such as "cannot be written".
    """
    try:
        yield
    except CheckpointException as error:
        rank, cause = next(iter(error.failures.items()))
        raise CheckpointError(f"{path}: the checkpoint {failure}, on rank {rank}: {cause[0]}") from error
