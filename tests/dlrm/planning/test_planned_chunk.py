"""On GPUs the plan decides an automatic chunk, by memory that the document says: no GPU is needed."""

from typing import Any

import pytest

from dlrm.config import DataFacts, ResolvedJob, parse_job, resolve
from dlrm.data.rows import DataSchema, Feature
from dlrm.train.build import plan_tables
from sharding.planner.report import RankReport

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


@pytest.mark.parametrize(
    ("gpu_memory", "changes", "chunk_size", "words"),
    [
        ("80GB", {}, 524_288, "the whole share, for which the plan has room"),
        ("28GB", {}, 262_144, "the share, halved until it fits"),
        ("16GB", {}, 65_536, "the share, halved until it fits"),
        ("80GB", {"batch": {"chunk_size": 1000}}, 1000, "set in the job"),
        ("80GB", {"resources": {"workers_per_node": 4}}, 131_072, "the whole share"),
    ],
)
def test_an_automatic_chunk_is_the_largest_for_which_the_gpus_of_a_plan_have_room(
    gpu_memory: str, changes: dict[str, Any], chunk_size: int, words: str
):
    planned = plan_tables(resolve_for_gpus(524_288, gpu_memory, **changes), SCHEMA)
    (told,) = (number for number in planned.resolved.derived if number.name == "chunk_size")
    assert (planned.resolved.chunk_size, told.value) == (chunk_size, chunk_size)
    assert words in told.reason
    assert planned.report.largest_bytes <= planned.report.memory_bytes


def count_tensor_bytes(rank: RankReport) -> int:
    """Count the bytes that torch allocates on a GPU: its context and the buffers of NCCL are not torch's."""
    return rank.total_bytes - rank.buffer_bytes["program"]


@pytest.mark.parametrize(
    ("global_size", "precision", "architecture", "chunk_size", "measured"),
    [
        (32_768, "fp32", "dlrm", 32_768, 2.2e9),
        (65_536, "bf16", "dlrm", 65_536, 2.7e9),
        (131_072, "bf16", "dlrm", 65_536, 3.8e9),
        (524_288, "fp32", "dlrm", 65_536, 9.98e9),
        (524_288, "bf16", "dlrm", 65_536, 10.0e9),
        (524_288, "bf16", "dlrm", 524_288, 16.5e9),
        (65_536, "fp32", "dcn_v2", 65_536, 6.6e9),
    ],
)
def test_a_plan_counts_the_bytes_that_were_measured_on_a_gpu(
    global_size: int, precision: str, architecture: str, chunk_size: int, measured: float
):
    """`torch.cuda.max_memory_allocated` on an H100, with four batches on the device where a run has three."""
    model = {"architecture": architecture, "embedding_dim": 64, "bottom_mlp": [512, 256, 64], "top_mlp": [512, 256, 1]}
    batch = {"chunk_size": chunk_size}
    resolved = resolve_for_gpus(global_size, "80GB", batch=batch, precision=precision, model=model)
    (rank,) = plan_tables(resolved, SCHEMA).report.ranks
    assert count_tensor_bytes(rank) == pytest.approx(measured, rel=0.05)
