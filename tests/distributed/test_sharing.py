"""Files of a checkpoint that are brought to rank 0 from directories of other ranks."""

from pathlib import Path

import pytest

from dlrm.checkpoint import sharing
from dlrm.checkpoint.sharing import DirectoryRanks, bring_to_rank0
from dlrm.record import CheckpointManifest, FileRecord
from sharding.comm.collectives import all_gather_object
from sharding.comm.process_groups import Ranks
from tests.rank_pool.pool import RankPools

CONTENT = bytes(range(250)) * 10


def bring(ranks: Ranks, path: Path, fault: str) -> tuple[str, bytes]:
    """Return the error that this rank gets, and the file on rank 0, whose directory is another one on every rank."""
    sharing.CHUNK_BYTES = 1000
    own = path / str(ranks.rank)
    own.mkdir()
    manifest = CheckpointManifest(
        step=10,
        num_steps=10,
        num_samples=10,
        time=0.0,
        world_size=2,
        identity={},
        data_checksum=None,
        files={name: FileRecord(num_bytes=len(CONTENT), sha256="") for name in ("a", "b")},
    )
    if ranks.rank == 1:
        for name in manifest.files:
            (own / name).write_bytes(CONTENT)
        if fault == "read":
            (own / "a").unlink()
            (own / "a").mkdir()
    elif fault == "write":
        # The name of the file that is being received.
        (own / ".a.part").mkdir()
    error = ""
    try:
        bring_to_rank0(own, manifest, DirectoryRanks(ranks.rank, 0, 1), ranks)
    except OSError as found:
        error = str(found)
    # All ranks are at the same place again.
    assert all_gather_object(ranks.background_group, ranks.rank) == [0, 1]
    return error, (path / "0" / "b").read_bytes()


@pytest.mark.parametrize("fault", ["", "read", "write"])
def test_a_file_that_cannot_be_brought_is_told_on_all_ranks_and_none_waits(
    rank_pools: RankPools, tmp_path: Path, fault: str
):
    answers = rank_pools.of(2).run(bring, tmp_path, fault)
    assert [content for _, content in answers] == [CONTENT, CONTENT]
    errors = {error for error, _ in answers}
    assert len(errors) == 1
    assert [bool(error) for error in errors] == [bool(fault)]
    if not fault:
        assert (tmp_path / "0" / "a").read_bytes() == CONTENT
