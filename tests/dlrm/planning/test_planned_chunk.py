"""On GPUs the plan decides an automatic chunk, by memory that the document says: no GPU is needed."""

import re
from typing import Any

import pytest

from dlrm.config import DataFacts, ResolvedJob, parse_job, resolve
from dlrm.data.errors import DataError
from dlrm.data.rows import DataSchema, Feature
from dlrm.planning.request import MAX_FILLED
from dlrm.train.build import plan_tables

SCHEMA = DataSchema(13, tuple(Feature(f"C{number}", 100_000) for number in range(26)))


def resolve_for_gpus(global_size: int, gpu_memory: str, **changes: Any) -> ResolvedJob:
    document = {
        "data": {"format": "synthetic"},
        "batch": {"global_size": global_size, **changes.pop("batch", {})},
        "model": {"architecture": "dlrm", "embedding_dim": 64, "bottom_mlp": [512, 256, 64], "top_mlp": [512, 256, 1]},
        "moments": None,
        "sharding": {"topology": {"gpu_memory": gpu_memory}},
        "resources": {"workers_per_node": 1, "gpus_per_worker": 1, "memory": "16GB", **changes.pop("resources", {})},
        **changes,
    }
    return resolve(parse_job(document), facts=DataFacts(num_train_rows=10**8))


def count_bytes(chunk_size: int, **changes: Any) -> int:
    """Count the bytes of a plan whose chunk is set in the job."""
    resolved = resolve_for_gpus(524_288, "80GB", batch={"chunk_size": chunk_size}, **changes)
    return plan_tables(resolved, SCHEMA).report.largest_bytes


@pytest.mark.parametrize("num_gpus", [1, 4])
@pytest.mark.parametrize("num_chunks", [1, 2, 8])
def test_an_automatic_chunk_is_the_largest_for_which_the_gpus_of_a_plan_have_room(num_gpus: int, num_chunks: int):
    resources = {"workers_per_node": num_gpus}
    chunk_size = max(65_536, 524_288 // num_gpus // num_chunks)
    enough = 1.01 * count_bytes(chunk_size, resources=resources) / MAX_FILLED
    resolved = resolve_for_gpus(524_288, f"{enough / 1e9:.3f}GB", resources=resources)
    planned = plan_tables(resolved, SCHEMA)
    (told,) = (number for number in planned.resolved.derived if number.name == "chunk_size")
    assert (planned.resolved.chunk_size, told.value) == (chunk_size, chunk_size)
    is_whole = chunk_size == resolved.share_size
    assert ("the whole share" if is_whole else "the share, halved until") in told.reason
    assert planned.report.largest_bytes == pytest.approx(enough * MAX_FILLED / 1.01)


def test_a_chunk_is_smaller_than_usual_if_a_gpu_has_no_room_otherwise():
    planned = plan_tables(resolve_for_gpus(65_536, "4GB"), SCHEMA)
    assert 2048 <= planned.resolved.chunk_size < 65_536
    assert planned.report.largest_bytes <= 4e9


def test_a_gpu_that_is_too_small_is_told_what_the_smallest_chunk_needs():
    with pytest.raises(DataError) as refused:
        plan_tables(resolve_for_gpus(65_536, "1.2GB"), SCHEMA)
    needed = re.search(r"needs ([\d.]+) GB and has 1\.2 GB", str(refused.value))
    assert needed is not None
    assert plan_tables(resolve_for_gpus(65_536, f"{needed[1]}GB"), SCHEMA).resolved.chunk_size == 2048


def test_a_chunk_that_is_set_stays():
    resolved = resolve_for_gpus(524_288, "80GB", batch={"chunk_size": 1000})
    planned = plan_tables(resolved, SCHEMA)
    assert planned.resolved == resolved
    assert planned.resolved.chunk_size == 1000
