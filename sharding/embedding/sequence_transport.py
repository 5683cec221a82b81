"""The transport of a table that sequences read: each id has an embedding of its own, and none is padded.

To a transport beneath, which holds this one table, each id is a sample of one id. So the table is looked up, exchanged
and updated as any other, and only the chunk [c, F, D] that the dense part reads is padded to the longest sequence.
The alternative, a feature for each of L positions, needs no code in this place: but then L lengths, L pooled embeddings
and L gradients of every sample of a share would exist and travel, whatever its length.

Transports need as many samples on every rank, so ranks agree on the largest number of ids of a batch, rounded up by an
eighth at most so that buffers last, by an all-reduce of one number in the input dist. Ids of a sample are neighbours,
so that the chunks of a share are ranges of them. Which ranges differs by rank, and so would the order in which slices
complete: the transport beneath has to exchange the share as one slice, whose collectives come at its lookup and at the
end of its last chunk.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from sharding.comm.process_groups import Ranks
from sharding.embedding.fused_optimizer import FusedUpdateParams
from sharding.embedding.input_dist import compute_offsets
from sharding.embedding.shard import Shard
from sharding.embedding.transport import InputDistHandle, PooledShare, Transport
from sharding.jagged import BagSizes, JaggedIds

LEAST_QUANTUM, QUANTA_OF_A_POWER = 8, 8
"""Numbers of ids are rounded up to a multiple of the first, and of an eighth of the next smaller power of two."""


@dataclass(frozen=True)
class Reader:
    """A feature that reads the table: its target, or a sequence."""

    feature: int
    """Number of the feature in the ids."""
    first_column: int
    """First of its embeddings in a chunk [c, F, D]."""
    max_length: int
    """Number of its embeddings there, 1 for the target. The last id of a sample has the last one."""

    @property
    def columns(self) -> slice:
        return slice(self.first_column, self.first_column + self.max_length)


@dataclass(frozen=True)
class _Places:
    """The ids of a share, sample by sample and within a sample reader by reader."""

    values: torch.Tensor
    """[n] rows of the table."""
    starts: torch.Tensor
    """[b + 1] int64 on the CPU, number of the first id of each sample, and of all ids."""
    embeddings: torch.Tensor
    """[n] int64, number of each id's embedding among all F embeddings of all samples of the share."""


def place_ids(ids: JaggedIds[torch.Tensor], readers: Sequence[Reader], num_columns: int) -> _Places:
    """Place the ids of the readers of a table. num_columns: F."""
    by_feature = ids.values.split(ids.measure_sizes().num_ids)
    lengths = ids.lengths[[reader.feature for reader in readers]].to(torch.int64)  # [readers, b]
    starts = compute_offsets(lengths.sum(dim=0))
    firsts = starts[:-1] + lengths.cumsum(dim=0) - lengths  # [readers, b]
    num_ids = sum(len(by_feature[reader.feature]) for reader in readers)
    values, embeddings = ids.values.new_empty(num_ids), starts.new_empty(num_ids)
    samples = torch.arange(lengths.shape[1], device=lengths.device)
    for reader, of_samples, first in zip(readers, lengths, firsts, strict=True):
        of_reader = by_feature[reader.feature]
        numbers = torch.arange(len(of_reader), device=of_reader.device)
        # Of each sample: where its first id goes, less the number of that id among the reader's.
        before = of_samples.cumsum(dim=0) - of_samples
        first_embedding = samples * num_columns + reader.first_column + reader.max_length - of_samples
        shifts = torch.stack([first - before, first_embedding - before]).repeat_interleave(
            of_samples, dim=1, output_size=len(of_reader)
        )
        places = shifts[0] + numbers
        values[places] = of_reader
        embeddings[places] = shifts[1] + numbers
    return _Places(values, starts.cpu(), embeddings)


@dataclass(frozen=True)
class SequenceInputDist:
    """The input dist of the transport beneath, and where its embeddings go."""

    places: _Places
    num_samples: int
    """Number of samples of the transport beneath, the same on every rank."""
    beneath: InputDistHandle

    def wait(self) -> None:
        """Wait until no id is in flight."""
        self.beneath.wait()


class SequenceTransport:
    """The table of a target and its sequences, on a transport beneath that holds it alone."""

    def __init__(
        self,
        beneath: Transport,
        table: int,
        dim: int,
        readers: Sequence[Reader],
        num_columns: int,
        ranks: Ranks,
    ) -> None:
        """Set what is read. table: number of the table in the plan. dim: d <= D, its columns. num_columns: F of a chunk
        [c, F, D].
        """
        self._beneath, self._table, self._dim, self._ranks = beneath, table, dim, ranks
        self._readers, self._num_columns = tuple(readers), num_columns

    def list_shards(self) -> list[Shard]:
        return _renumber(self._beneath.list_shards(), [self._table])

    def start_input_dist(self, ids: JaggedIds[torch.Tensor]) -> SequenceInputDist:
        """Start to send ids, after an all-reduce of their largest number on a rank. Collective."""
        places = place_ids(ids, self._readers, self._num_columns)
        num_ids = len(places.values)
        num_samples = _round_up(self._find_most(num_ids))
        lengths = torch.zeros(1, num_samples, dtype=torch.int32, device=places.values.device)
        lengths[:, :num_ids] = 1
        sizes = BagSizes([num_ids], are_single=num_ids == num_samples)
        return SequenceInputDist(
            places, num_samples, self._beneath.start_input_dist(JaggedIds(places.values, lengths, sizes))
        )

    def lookup(self, handle: SequenceInputDist, learning_rate: float) -> "_SequenceShare":
        """Look up the ids; see `Transport.lookup`. Collective."""
        share = self._beneath.lookup(handle.beneath, learning_rate)
        return _SequenceShare(share, handle, self._dim, [reader.columns for reader in self._readers])

    def _find_most(self, num_ids: int) -> int:
        """Find the largest number of ids on a rank. Collective."""
        if self._ranks.world_size == 1:
            return num_ids
        most = torch.tensor(num_ids, device=self._ranks.device)
        dist.all_reduce(most, dist.ReduceOp.MAX, group=self._ranks.table_group)
        return int(most)


class _SequenceShare:
    """Embeddings of a share's ids; reading a chunk puts them in their places there."""

    def __init__(self, beneath: PooledShare, handle: SequenceInputDist, dim: int, columns: list[slice]) -> None:
        self._beneath, self._places, self._dim, self._columns = beneath, handle.places, dim, columns
        self._num_padded = handle.num_samples

    def read_chunk(self, start: int, end: int, out: torch.Tensor) -> None:
        """Write the embeddings of samples [start, end) into `out` [c, F, D], zeros where a sequence has no id."""
        for columns in self._columns:
            out[:, columns] = 0
        first, last = self._find_range(start, end)
        if first == last:
            return
        embeddings = out.new_empty(last - first, 1, self._dim)
        self._beneath.read_chunk(first, last, embeddings)
        places = self._list_places(start, first, last, out.shape[1])
        out.view(-1, out.shape[2])[:, : self._dim].index_copy_(0, places, embeddings[: len(places), 0])

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> None:
        """Store the gradient [c, F, D] of samples [start, end)."""
        first, last = self._find_range(start, end)
        if first == last:
            return
        places = self._list_places(start, first, last, gradient.shape[1])
        of_ids = gradient.new_zeros(last - first, 1, self._dim)
        of_ids[: len(places), 0] = gradient.flatten(0, 1)[:, : self._dim].index_select(0, places)
        self._beneath.write_gradient(first, last, of_ids)

    def discard(self) -> None:
        self._beneath.discard()

    def apply_update(self, params: FusedUpdateParams) -> None:
        self._beneath.apply_update(params)

    def _find_range(self, start: int, end: int) -> tuple[int, int]:
        """Find the ids of samples [start, end); those that fill up the share belong to the last sample."""
        starts = self._places.starts
        return int(starts[start]), self._num_padded if end == len(starts) - 1 else int(starts[end])

    def _list_places(self, start: int, first: int, last: int, num_columns: int) -> torch.Tensor:
        """List the numbers of the embeddings of ids [first, last) in a chunk that begins with sample `start`."""
        return self._places.embeddings[first:last] - start * num_columns


class PartTransport:
    """Some tables of a plan, on a transport beneath that holds them alone, numbered from 0."""

    def __init__(self, beneath: Transport, tables: Sequence[int], dim: int) -> None:
        """Set which tables they are. tables: their numbers in the plan, and in the ids of a batch. dim: d <= D, columns
        of the widest of them.
        """
        self._beneath, self._tables, self._dim = beneath, list(tables), dim

    def list_shards(self) -> list[Shard]:
        return _renumber(self._beneath.list_shards(), self._tables)

    def start_input_dist(self, ids: JaggedIds[torch.Tensor]) -> InputDistHandle:
        num_ids = ids.measure_sizes().num_ids
        by_feature = ids.values.split(num_ids)
        sizes = BagSizes([num_ids[table] for table in self._tables], are_single=ids.measure_sizes().are_single)
        values = torch.cat([by_feature[table] for table in self._tables])
        return self._beneath.start_input_dist(JaggedIds(values, ids.lengths[self._tables], sizes))

    def lookup(self, handle: Any, learning_rate: float) -> "_PartShare":
        return _PartShare(self._beneath.lookup(handle, learning_rate), self._tables, self._dim)


class _PartShare:
    """Pooled embeddings of some tables of a share."""

    def __init__(self, beneath: PooledShare, tables: list[int], dim: int) -> None:
        self._beneath, self._tables, self._dim = beneath, tables, dim

    def read_chunk(self, start: int, end: int, out: torch.Tensor) -> None:
        pooled = out.new_zeros(out.shape[0], len(self._tables), self._dim)
        self._beneath.read_chunk(start, end, pooled)
        out[:, self._tables, : self._dim] = pooled

    def write_gradient(self, start: int, end: int, gradient: torch.Tensor) -> None:
        self._beneath.write_gradient(start, end, gradient[:, self._tables, : self._dim])

    def discard(self) -> None:
        self._beneath.discard()

    def apply_update(self, params: FusedUpdateParams) -> None:
        self._beneath.apply_update(params)


def _renumber(shards: list[Shard], tables: Sequence[int]) -> list[Shard]:
    """Number shards by the tables of the whole plan."""
    return [replace(shard, spec=replace(shard.spec, feature=tables[shard.spec.feature])) for shard in shards]


def _round_up(num_ids: int) -> int:
    quantum = max(LEAST_QUANTUM, (1 << max(num_ids, 1).bit_length() - 1) // QUANTA_OF_A_POWER)
    return -(-max(num_ids, 1) // quantum) * quantum
