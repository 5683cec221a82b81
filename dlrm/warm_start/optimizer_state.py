"""What the optimizers of a run have gathered, out of its last checkpoint."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from dlrm.build import Parts
from dlrm.checkpoint import checkpoint_errors
from dlrm.checkpoint.find import verify
from dlrm.data.errors import DataError
from dlrm.record import CheckpointDirectory, CheckpointFaultError
from sharding.ranks import Ranks

FIELD = "run.warm_start.optimizer_state"
_VALID = "false, or `from` a run whose last checkpoint is whole"


@torch.no_grad()
def take_over(parts: Parts, checkpoint: CheckpointDirectory, gradient_scale: float, ranks: Ranks) -> None:
    """Give the optimizers of `parts`, which hold the weights of `checkpoint` already, their state there. Collective.

    Rows that its tables do not have keep the state of a row that was never updated. gradient_scale: S of this run.
    Raises DataError where the checkpoint is not whole, or of other weights than the model that came out of its run, and
    CheckpointError where its files cannot be read now.
    """
    try:
        manifest = checkpoint.manifest()
        verify(checkpoint, manifest, ranks)
        saved = _Saved(checkpoint.path)
        _check_same_weights(parts, saved)
        # Row-wise Adagrad sums squares of S times the gradient; both are powers of two, so that nothing is rounded.
        factor = (gradient_scale / manifest.identity["gradient_scale"]) ** 2
        _fill_tables(parts.tables.state()["optimizer"]["state"], saved, factor)
        _fill_dense(parts.optimizer, saved)
    except CheckpointFaultError as error:
        raise DataError(f"the checkpoint is not whole: {error}", checkpoint.path, field=FIELD, valid=_VALID) from None


class _Saved:
    """A checkpoint, read one tensor at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        entries = FileSystemReader(path).read_metadata().state_dict_metadata
        self._entries = {name: entry for name, entry in entries.items() if isinstance(entry, TensorStorageMetadata)}

    def names(self, prefix: str) -> list[str]:
        return [name for name in self._entries if name.startswith(prefix)]

    def read(self, name: str) -> torch.Tensor:
        """A tensor, put together from its shards. Raises CheckpointFaultError and CheckpointError."""
        entry = self._entries.get(name)
        if entry is None:
            raise CheckpointFaultError(f"it holds no {name}")
        tensor = torch.empty(entry.size, dtype=entry.properties.dtype)
        with checkpoint_errors(self._path, "cannot be read"):
            load({name: tensor}, checkpoint_id=self._path, no_dist=True)
        return tensor


def _check_same_weights(parts: Parts, saved: _Saved) -> None:
    for name, parameter in parts.model.state_dict().items():
        if not torch.equal(saved.read(f"dense.{name}"), parameter.cpu()):
            raise CheckpointFaultError("it is of other weights than the model: the last one of the run is gone")


def _fill_tables(state: Mapping[str, Mapping[str, Any]], saved: _Saved, factor: float) -> None:
    """state: of each table by its key, what the fused optimizer keeps, of which each rank holds shards [rows]."""
    for table, kept in state.items():
        for name, value in kept.items():
            if not isinstance(value, ShardedTensor) or not value.local_shards():
                continue
            old = saved.read(f"tables.optimizer.state.{table}.{name}").mul_(factor)
            for shard in value.local_shards():
                row = shard.metadata.shard_offsets[0]
                rows = old[row : row + len(shard.tensor)]
                shard.tensor[: len(rows)].copy_(rows)


def _fill_dense(optimizer: torch.optim.Optimizer, saved: _Saved) -> None:
    """The rates of its groups stay: they follow the schedule of this run."""
    prefix = "dense_optimizer.state."
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name in saved.names(prefix):
        number, _, kept = name.removeprefix(prefix).partition(".")
        state.setdefault(int(number), {})[kept] = saved.read(name)
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
