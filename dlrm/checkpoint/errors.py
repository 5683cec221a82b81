"""The error of a checkpoint."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch.distributed.checkpoint.api import CheckpointException


class CheckpointError(OSError):
    """A checkpoint that could not be written or read; names its directory and the first cause."""


@contextmanager
def checkpoint_errors(path: Path, what: str) -> Iterator[None]:
    """Turn what torch raises, which is no `Exception` and has the causes by rank, into a CheckpointError.

    what: such as "cannot be written".
    """
    try:
        yield
    except CheckpointException as error:
        rank, cause = next(iter(error.failures.items()))
        raise CheckpointError(f"{path}: the checkpoint {what}, on rank {rank}: {cause[0]}") from error
