"""Shards of tables in mapped files, so that tables may be larger than memory.

The file of a rank has the weights of all its shards, then their optimizer state. The ranks of one machine map the files
of all ranks.
"""

import errno
import math
import shutil
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import torch

from sharding.comm.mapped_file import MappedFile
from sharding.comm.process_groups import Ranks
from sharding.comm.shared_memory import SharedBuffer, round_up_to_cache_line, share_buffers
from sharding.embedding.fused_optimizer import TableOptimizer
from sharding.embedding.resident_pages import PagedFile, ResidentPages, RowPlace
from sharding.embedding.shard import ShardSpec, get_state_shape
from sharding.jagged import JaggedIds

FLOAT_BYTES = 4
PAGE_USE = torch.int32
"""Dtype of the number of the batch that has used a page last."""


@dataclass(frozen=True)
class MappedFiles:
    """Place of tables in files, and bound on what stays of them in memory."""

    directory: Path
    """Directory on a disk of the machine; nothing can be seen of the files there."""
    resident_bytes: int
    """Bound on the memory that all tables take on the machine."""


class MappedFilesError(RuntimeError):
    """The files cannot be made; the message says why."""


class MappedShards:
    """The files of all ranks, as one rank maps them."""

    def __init__(
        self, specs: Sequence[Sequence[ShardSpec]], optimizer: TableOptimizer, ranks: Ranks, mapped: MappedFiles
    ) -> None:
        """Make this rank's file, and map the files of all ranks. Collective. Raises MappedFilesError on every rank.

        specs: shards of every rank.
        """
        places = [_place_rows(of_rank, optimizer) for of_rank in specs]
        num_bytes = [_find_end(of_rank) for of_rank in places]
        self.files = _share_files(num_bytes, ranks, mapped.directory)
        """Files by rank: weights of its shards, one after the other, then the state of each."""
        num_shards = len(specs[ranks.rank])
        self.states = [
            self.files[ranks.rank].view_tensor(torch.float32, get_state_shape(spec, optimizer), place.first_byte)
            for spec, place in zip(specs[ranks.rank], places[ranks.rank][num_shards:], strict=True)
        ]
        """State of this rank's shards, zero."""
        use_bytes = self.files[ranks.rank].num_pages * PAGE_USE.itemsize
        uses = share_buffers(ranks.table_group, lambda: SharedBuffer.create(use_bytes))
        paged = [
            PagedFile(file, of_rank, use.view_tensor(PAGE_USE, (file.num_pages,)).numpy())
            for file, of_rank, use in zip(self.files, places, uses, strict=True)
        ]
        self._pages = ResidentPages(paged, ranks.rank, mapped.resident_bytes // ranks.world_size)

    def read_ahead(self, ids: JaggedIds[torch.Tensor]) -> Future[None]:
        """Start to read the rows that the next batch names; the future is done once all are on their way."""
        by_feature = ids.values.split(ids.measure_sizes().num_ids)
        return self._pages.read_ahead([of_feature.numpy() for of_feature in by_feature])


def _place_rows(specs: Sequence[ShardSpec], optimizer: TableOptimizer) -> list[RowPlace]:
    """Lay out the file of a rank: the weights of each of its shards, then the state of each."""
    places: list[RowPlace] = []
    end = 0
    sizes = [spec.block.count_weight_bytes(spec.table.dtype) for spec in specs]
    sizes += [math.prod(get_state_shape(spec, optimizer)) * FLOAT_BYTES for spec in specs]
    for spec, num_bytes in zip([*specs, *specs], sizes, strict=True):
        block = spec.block
        places.append(RowPlace(spec.feature, block.first_row, block.num_rows, end, num_bytes // block.num_rows))
        end += round_up_to_cache_line(num_bytes)
    return places


def _find_end(places: Sequence[RowPlace]) -> int:
    """Return the bytes of a file with these rows."""
    return max((place.first_byte + place.num_rows * place.row_bytes for place in places), default=0)


def _share_files(num_bytes: Sequence[int], ranks: Ranks, directory: Path) -> list[MappedFile]:
    """Make the file of this rank, and map the files of all ranks. Collective. num_bytes: of each rank's file."""

    def create() -> MappedFile:
        # Ranks make their files at the same time: each looks whether there is space for all.
        if ranks.rank == 0 and (free := shutil.disk_usage(directory).free) < sum(num_bytes):
            sizes = f"{sum(num_bytes) / 1e6:,.0f} MB are needed, and {free / 1e6:,.0f} MB are free"
            raise OSError(errno.ENOSPC, sizes)
        return MappedFile.create_in(directory, num_bytes[ranks.rank])

    try:
        return share_buffers(ranks.table_group, create)
    except OSError as error:
        message = f"the tables cannot lie in files in {directory}: {error.strerror or error}"
        raise MappedFilesError(message) from error
