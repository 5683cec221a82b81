"""Optimizer state for a warm start, read from the checkpoint of an earlier run that its model comes from."""

from pathlib import Path

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.state_dict_loader import load

from dlrm.checkpoint.find import read_verified_manifest
from dlrm.checkpoint.state_files import AVERAGE, load_state, translate_checkpoint_errors
from dlrm.data.errors import DataError
from dlrm.gradient_stats.variance_reduction import VarianceReduction
from dlrm.optimizers import AveragingOptimizer
from dlrm.record import CheckpointDirectory, CheckpointFaultError
from dlrm.train.build import Parts
from sharding.comm.process_groups import Ranks
from sharding.embedding import PIECE_BYTES, Shard

FIELD = "run.warm_start.optimizer_state"
_VALID = "false, or in `from` a run whose checkpoint of the model is intact"


@torch.no_grad()
def load_optimizer_state(parts: Parts, checkpoint: CheckpointDirectory, sample_scale: float, ranks: Ranks) -> None:
    """Load the optimizer state of `checkpoint` into `parts`, which hold its weights already. Collective.

    Rows missing from the checkpoint's tables keep the state of a row that was never updated. sample_scale: S / B of
    this run. Raises DataError if the checkpoint is damaged, or has other weights than the model that its run exported,
    and CheckpointError if its files cannot be read now.
    """
    try:
        manifest = read_verified_manifest(checkpoint, ranks)
        saved = SavedState(checkpoint.path)
        _check_same_weights(parts, saved)
        # Row-wise Adagrad sums squares of S / B times the sum of the gradients of a batch's rows.
        before = manifest.identity["gradient_scale"] / manifest.identity["batch.global_size"]
        factor = (sample_scale / before) ** 2
        fill_tables(parts.tables.list_shards(), saved, factor)
        _fill_dense(parts.optimizer, saved)
        if isinstance(parts.optimizer, AveragingOptimizer):
            parts.optimizer.restart()
        if parts.reduction is not None:
            _fill_reduction(parts.reduction, saved)
    except CheckpointFaultError as error:
        raise DataError(f"the checkpoint is damaged: {error}", checkpoint.path, field=FIELD, valid=_VALID) from None


class SavedState:
    """A checkpoint, read one tensor at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        entries = FileSystemReader(path).read_metadata().state_dict_metadata
        self._entries = {name: entry for name, entry in entries.items() if isinstance(entry, TensorStorageMetadata)}

    def list_names(self, prefix: str) -> list[str]:
        """List the tensors whose names begin with `prefix`."""
        return [name for name in self._entries if name.startswith(prefix)]

    def read(self, name: str) -> torch.Tensor:
        """Read a tensor from its shards. Raises CheckpointFaultError and CheckpointError."""
        entry = self._get_entry(name)
        tensor = torch.empty(entry.size, dtype=entry.properties.dtype)
        load_state({name: tensor}, self._path)
        return tensor

    def read_rows(self, name: str, first: int, at_most: int) -> torch.Tensor:
        """Read at most `at_most` rows from row `first` on. Raises CheckpointFaultError and CheckpointError."""
        entry = self._get_entry(name)
        num_rows = max(0, min(at_most, entry.size[0] - first))
        rows = torch.empty((num_rows, *entry.size[1:]), dtype=entry.properties.dtype)
        if num_rows:
            with translate_checkpoint_errors(self._path, "cannot be read"):
                load({name: rows}, checkpoint_id=self._path, planner=_RowsPlanner(entry, first), no_dist=True)
        return rows

    def _get_entry(self, name: str) -> TensorStorageMetadata:
        if name not in self._entries:
            raise CheckpointFaultError(f"it contains no {name}")
        return self._entries[name]


class _RowsPlanner(DefaultLoadPlanner):
    """Loads rows of one tensor into one that holds these rows alone."""

    def __init__(self, entry: TensorStorageMetadata, first: int) -> None:
        super().__init__()
        self._entry, self._first = entry, first

    def create_local_plan(self) -> LoadPlan:
        ((name, rows),) = self.state_dict.items()
        offsets = torch.Size([self._first, *(0 for _ in rows.shape[1:])])
        chunk = ChunkStorageMetadata(offsets=offsets, sizes=rows.shape)
        return LoadPlan(create_read_items_for_chunk_list(name, self._entry, [chunk]))

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        return self.state_dict[index.fqn]


def _check_same_weights(parts: Parts, saved: SavedState) -> None:
    """Raise CheckpointFaultError if the dense parameters are not those that the checkpoint's run exported."""
    prefix = f"{AVERAGE}.dense." if saved.list_names(f"{AVERAGE}.dense.") else "dense."
    for name, parameter in parts.model.state_dict().items():
        if not torch.equal(saved.read(f"{prefix}{name}"), parameter.cpu()):
            raise CheckpointFaultError("its weights are not those of the model")


def fill_tables(shards: list[Shard], saved: SavedState, factor: float) -> None:
    """Load the state of this rank's shards, times `factor`: nothing, [R] or [R, C] each, in pieces."""
    for shard in shards:
        if not shard.state.numel():
            continue
        block, name = shard.spec.block, f"tables.optimizer.{shard.spec.table.name}"
        # A state is no wider than its table.
        at_most = max(1, PIECE_BYTES // (shard.spec.table.embedding_dim * shard.state.element_size()))
        for start in range(0, block.num_rows, at_most):
            rows = saved.read_rows(name, block.first_row + start, min(at_most, block.num_rows - start))
            shard_rows = rows if rows.dim() == 1 else rows[:, shard.spec.columns]
            shard.state[start : start + len(rows)].copy_(shard_rows.mul_(factor))


def _fill_dense(optimizer: torch.optim.Optimizer, saved: SavedState) -> None:
    """Load the dense optimizer's state. Learning rates stay: they follow the schedule of this run."""
    prefix = "dense_optimizer.state."
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name in saved.list_names(prefix):
        number, _, field = name.removeprefix(prefix).partition(".")
        state.setdefault(int(number), {})[field] = saved.read(name)
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _fill_reduction(reduction: VarianceReduction, saved: SavedState) -> None:
    """Load variances and factors; they stay as they are where the earlier run had none."""
    prefix = "variance_reduction."
    state = reduction.state_dict()
    for name in saved.list_names(prefix):
        state[name.removeprefix(prefix)].copy_(saved.read(name))
