"""Tables in mapped files are the tables in memory, whatever the bound on what stays of them."""

import ctypes
import gc
import mmap
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import DEFAULT_VOTE, all_reduce_votes
from sharding.embedding import BatchInputDist, MappedFiles, MappedFilesError
from sharding.jagged import JaggedIds
from sharding.planner import Table
from tests.patience import PATIENCE_SECONDS
from tests.rank_pool.pool import RankPools
from tests.sharding.embedding.plans import make_mixed_plan, make_uniform_plan
from tests.sharding.embedding.table_batches import DIM, GLOBAL_SIZE, LEARNING_RATE, TABLES, draw_three_batches
from tests.sharding.embedding.table_steps import OptimizerName, TableLayout, TablesResult, look_up_and_update
from tests.small_disk import small_disk

ONE_PAGE = mmap.PAGESIZE
WORLD_SIZES = [1, 2, pytest.param(4, marks=pytest.mark.slow)]


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad", "adagrad"])
@pytest.mark.parametrize("resident_bytes", [ONE_PAGE, 1 << 30])
def test_updates_are_bit_for_bit_those_in_memory(
    rank_pools: RankPools, tmp_path: Path, world_size: int, optimizer: OptimizerName, resident_bytes: int
):
    plan = make_mixed_plan(TABLES, world_size)
    if optimizer == "rowwise_adagrad":
        plan = make_uniform_plan(TABLES, "row_wise", world_size)
    layout, batches = TableLayout(plan, optimizer=optimizer, initial_state=0.5), draw_three_batches()
    in_files = replace(layout, mapped=MappedFiles(tmp_path, resident_bytes))
    expected: list[TablesResult] = rank_pools.of(world_size).run(look_up_and_update, layout, batches)
    found: list[TablesResult] = rank_pools.of(world_size).run(look_up_and_update, in_files, batches)
    for one, other in zip(expected, found, strict=True):
        assert one.after.keys() == other.after.keys()
        for name, weights in one.after.items():
            assert torch.equal(one.before[name], other.before[name])
            assert torch.equal(weights, other.after[name])
        for kind in ("pooled", "evaluated"):
            for before, after in zip(getattr(one, kind), getattr(other, kind), strict=True):
                assert torch.equal(before, after)


def make_and_forget(ranks: Ranks, layout: TableLayout) -> tuple[list[str], int]:
    """Make tables and forget them; return what their directory held meanwhile, and how many files stay open."""
    assert layout.mapped is not None
    tables = layout.make_tables(ranks)
    seen = [path.name for path in layout.mapped.directory.iterdir()]
    del tables
    gc.collect()
    links = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return seen, sum(link.startswith(str(layout.mapped.directory)) for link in links)


def test_files_have_no_name_and_are_gone_with_their_tables(rank_pools: RankPools, tmp_path: Path):
    layout = TableLayout(make_uniform_plan(TABLES, "row_wise", 2), mapped=MappedFiles(tmp_path, ONE_PAGE))
    assert rank_pools.of(2).run(make_and_forget, layout) == [([], 0), ([], 0)]


def refuse(ranks: Ranks, layout: TableLayout) -> str:
    with pytest.raises(MappedFilesError) as caught:
        layout.make_tables(ranks)
    return str(caught.value)


def test_too_little_space_for_all_tables_is_an_error_on_every_rank(rank_pools: RankPools, tmp_path: Path):
    plan = make_uniform_plan([Table("large", 100_000, DIM)], "row_wise", 2)
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        layout = TableLayout(plan, mapped=MappedFiles(disk, ONE_PAGE))
        for message in rank_pools.of(2).run(refuse, layout):
            assert str(disk) in message
            assert "6 MB are needed, and 1 MB are free" in message


def pass_through(ranks: Ranks, layout: TableLayout, num_batches: int, bound: int) -> tuple[int, int]:
    """Update rows of many pages; return the most bytes of table files that this process has mapped after a batch, and
    the bytes of its own file in the machine's memory at the end, once they are `bound` or less.
    """
    assert layout.mapped is not None
    tables, mapped_bytes = layout.make_tables(ranks), list[int]()
    num_rows = layout.plan.tables[0].table.num_rows
    generator = torch.Generator().manual_seed(ranks.rank)
    size = GLOBAL_SIZE // ranks.world_size

    def start() -> BatchInputDist:
        drawn = torch.randint(0, num_rows, (size,), generator=generator)
        return tables.start_input_dist(JaggedIds(drawn, torch.ones(1, size, dtype=torch.int32)))

    ahead = start()
    for _ in range(num_batches):
        handle, ahead = ahead, start()
        pooled = tables.lookup(handle, GLOBAL_SIZE)
        pooled.read_chunk(0, size)
        pooled.write_gradient(0, size, torch.ones(size, 1, DIM))
        all_reduce_votes(ranks, DEFAULT_VOTE)
        pooled.apply_update(LEARNING_RATE)
        mapped_bytes.append(read_mapped_bytes(layout.mapped.directory))
    (shard,) = tables.list_shards()
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    # Changed pages leave as soon as the disk has them.
    while (cached_bytes := count_cached_bytes(shard.weights)) > bound and time.monotonic() < give_up_at:
        start().wait()
        time.sleep(0.01)
    return max(mapped_bytes), cached_bytes


def read_mapped_bytes(directory: Path) -> int:
    """Return the bytes of files of `directory` that count as memory of this process."""
    text, num_bytes = Path("/proc/self/smaps").read_text(), 0
    for mapping in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.MULTILINE):
        if str(directory) in mapping.partition("\n")[0]:
            num_bytes += sum(int(kib) * 1024 for kib in re.findall(r"^Rss:\s+(\d+) kB", mapping, re.MULTILINE))
    return num_bytes


def count_cached_bytes(tensor: torch.Tensor) -> int:
    """Count the bytes of the pages of a mapped tensor that the machine has in memory."""
    num_pages = -(-tensor.nbytes // ONE_PAGE)
    is_there = (ctypes.c_ubyte * num_pages)()
    address, length = ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(tensor.nbytes)
    assert ctypes.CDLL(None, use_errno=True).mincore(address, length, is_there) == 0
    return ONE_PAGE * sum(page & 1 for page in is_there)


@pytest.mark.parametrize("world_size", [1, 2])
def test_no_more_than_the_bound_and_the_batches_in_flight_stays_in_memory(
    rank_pools: RankPools, tmp_path: Path, world_size: int
):
    plan = make_uniform_plan([Table("large", 200_000, DIM)], "row_wise", world_size)
    of_rank = 100 * ONE_PAGE
    layout = TableLayout(plan, mapped=MappedFiles(tmp_path, of_rank * world_size))
    # Of 3,125 pages. Batches in flight are on their way in.
    bound = of_rank + 5 * GLOBAL_SIZE * ONE_PAGE
    for mapped_bytes, cached_bytes in rank_pools.of(world_size).run(pass_through, layout, 40, bound):
        # A fault maps up to 16 pages that are in memory.
        assert 0 < mapped_bytes <= 4 * GLOBAL_SIZE * 16 * ONE_PAGE
        assert cached_bytes <= bound
