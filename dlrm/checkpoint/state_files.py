"""Files of a checkpoint's state, in the format of torch.distributed.checkpoint.

That package is imported by the first call: it takes most of a second, which the first training step need not wait for.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist

from dlrm.checkpoint import CheckpointError

AVERAGE = "average"
"""Name in a checkpoint of the average of the weights, with `tables` and `dense` by name."""


def save_state(state: dict[str, Any], path: Path, group: dist.ProcessGroup) -> None:
    """Write the parts of `state` that this rank has to the directory `path`. Collective. Raises CheckpointError."""
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    with translate_checkpoint_errors(path, "cannot be written"):
        save(state, storage_writer=FileSystemWriter(path), process_group=group)


def load_state(
    state: dict[str, Any],
    path: Path,
    group: dist.ProcessGroup | None = None,
    after_piece: Callable[[], None] | None = None,
) -> None:
    """Read what `state` names from the checkpoint `path`: tensors in place, other values replaced in the dictionary.

    Rows of int8 are decoded if the tensor is fp32. group: ranks that call this together; None if this process reads for
    itself. after_piece: called after each piece of a tensor. Raises CheckpointError.
    """
    from torch.distributed.checkpoint.state_dict_loader import load

    from dlrm.checkpoint.load_planner import DecodingPlanner

    planner = DecodingPlanner(after_piece)
    with translate_checkpoint_errors(path, "cannot be read"), warnings.catch_warnings():
        # One process reads for itself on purpose.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        load(state, checkpoint_id=path, planner=planner, process_group=group, no_dist=group is None)


def read_state_names(path: Path) -> list[str]:
    """Read the names of all that the checkpoint `path` holds. Raises CheckpointError."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader

    with translate_checkpoint_errors(path, "cannot be read"):
        return list(FileSystemReader(path).read_metadata().state_dict_metadata)


@contextmanager
def translate_checkpoint_errors(path: Path, failure: str) -> Iterator[None]:
    """Turn torch's CheckpointException, which is not an `Exception` and has the causes by rank, into a CheckpointError.

    failure: the failure in words, such as "cannot be written".
    """
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except CheckpointException as error:
        rank, cause = next(iter(error.failures.items()))
        raise CheckpointError(f"{path}: the checkpoint {failure}, on rank {rank}: {cause[0]}") from error
