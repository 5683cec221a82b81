"""What a job's document says to a plan."""

from dataclasses import replace
from typing import Any

import pytest

from dlrm.config import JobConfig, resolve
from dlrm.config.resources import ResourcesConfig
from dlrm.data.errors import DataError
from dlrm.data.rows import DataSchema, Feature
from dlrm.planning.machine_resources import (
    MachineResources,
    describe_machine,
    describe_machine_elsewhere,
    list_notes,
)
from dlrm.planning.request import InvalidPlanError, make_checked_plan, make_plan_request
from dlrm.planning.sizes import UnknownSizesError, find_sizes
from dlrm.train.build import plan_tables
from sharding.native import load_library
from sharding.planner import Plan, PlanRequest, Table, make_plan
from sharding.planner.machine import Speeds

SPEEDS = Speeds(one_copy=1e10, all_copies=1.6e10, loopback=2e9, flops=1e11, flops_bf16=4e11)
HERE = MachineResources(SPEEDS, num_cores=8, memory_bytes=2**34, has_operators=True)
TABLES = [Table("a", 100, 64), Table("b", 10_000, 64)]


def request_for(**document: Any) -> PlanRequest:
    return request_here(HERE, **document)


def request_here(here: MachineResources, **document: Any) -> PlanRequest:
    return make_plan_request(
        resolve(JobConfig.model_validate({"data": {"format": "synthetic"}, **document})), TABLES, 13, here
    )


def notes_here(here: MachineResources, **document: Any) -> list[str]:
    return list_notes(JobConfig.model_validate({"data": {"format": "synthetic"}, **document}), here)


def test_ranks_share_the_bandwidth_of_the_machine():
    topology = request_for(resources={"workers_per_node": 4, "threads_per_worker": 1}).topology
    assert topology.memory_bandwidth == 4e9
    assert request_for(resources={"workers_per_node": 1}, batch={"global_size": 64}).topology.memory_bandwidth == 1e10


def test_ranks_on_cpus_share_the_link_of_their_machine_and_gpus_have_their_own():
    def find_bandwidth(workers: int, **resources: Any) -> float:
        nodes = {"nodes": 2, "workers_per_node": workers, **resources}
        return request_for(resources=nodes, batch={"global_size": 1024}).topology.inter_node_bandwidth

    assert find_bandwidth(1) == 8 * find_bandwidth(8)
    assert find_bandwidth(1, gpus_per_worker=1) == find_bandwidth(8, gpus_per_worker=1)


def test_of_a_range_that_has_begun_on_one_machine_the_ranks_share_memory():
    for present, transport in ((1, "memory"), (2, "network"), (None, "network")):
        nodes = {"min": 1, "max": 2, "present": present}
        request = request_for(resources={"nodes": nodes, "workers_per_node": 2}, batch={"global_size": 1024})
        assert request.transport == transport


def test_threads_beyond_the_cores_of_this_machine_make_no_step_faster():
    here = replace(HERE, num_cores=2)
    resources = {"workers_per_node": 4, "threads_per_worker": 64}
    topology = request_here(here, resources=resources).topology
    assert (topology.cores_per_rank, topology.flops, topology.memory_bandwidth) == (0.5, 2.5e10, 4e9)
    (note,) = notes_here(here, resources=resources)
    assert "4 x 64 threads are more than the 2 cores of this machine" in note


@pytest.mark.parametrize(
    "document",
    [
        {"sharding": {"topology": {"flops": 1e12}}},
        {"resources": {"nodes": 2, "threads_per_worker": 64, "memory": "64GiB"}},
    ],
)
def test_another_machine_has_the_cores_and_the_memory_that_the_job_says(document: dict[str, Any]):
    document = {"resources": {"threads_per_worker": 64, "memory": "64GiB"}, **document}
    assert request_for(**document).topology.cores_per_rank == 64
    assert notes_here(HERE, **document) == []


def test_more_memory_than_this_machine_has_is_noted():
    (note,) = notes_here(HERE, resources={"memory": "64GiB"})
    assert "resources.memory: 64.0 GiB is more than the 16.0 GiB of this machine" in note
    assert notes_here(HERE, resources={"memory": "16GiB"}) == []


@pytest.mark.parametrize(
    ("has_operators", "asked", "transport", "words"),
    [
        (True, "auto", "memory", ""),
        (False, "auto", "torchrec", "are not built here, so TorchRec has the tables"),
        (None, "auto", "memory", "is unknown without torch"),
        (False, "memory", "memory", '"memory" needs the native operators'),
        (False, "network", "network", '(valid: "auto", "torchrec")'),
        (False, "torchrec", "torchrec", ""),
    ],
)
def test_without_the_own_operators_ranks_have_no_memory_in_common(
    has_operators: bool | None, asked: str, transport: str, words: str
):
    here, document = replace(HERE, has_operators=has_operators), {"sharding": {"transport": asked}}
    assert request_here(here, **document).transport == transport
    notes = notes_here(here, **document)
    assert len(notes) == bool(words)
    assert words in "".join(notes)


def test_rows_of_int8_without_the_own_operators_are_noted():
    here, document = replace(HERE, has_operators=False), {"sharding": {"table_dtype": "int8"}}
    assert request_here(here, **document).transport == "memory"
    (note,) = notes_here(here, **document)
    assert "rows of int8 (sharding.table_dtype) need the native operators" in note


def test_this_machine_is_asked_once_for_all_that_a_plan_depends_on():
    here = describe_machine(
        JobConfig.model_validate({"data": {"format": "synthetic"}, "resources": {"gpus_per_worker": 1}})
    )
    assert here.num_cores >= 1
    assert here.memory_bytes > 2**28
    assert here.has_operators == load_library("tables")


def test_a_machine_elsewhere_has_what_the_job_asks_for_and_cores_like_those_here(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sharding.planner.machine.load_speeds", lambda: SPEEDS)
    monkeypatch.setattr("hostinfo.limits.count_cores", lambda: 4)
    monkeypatch.setattr("hostinfo.limits.get_gpu_memory_bytes", lambda: pytest.fail("the GPUs of this machine count"))
    resources = {"workers_per_node": 8, "threads_per_worker": 2, "memory": "900TiB"}
    job = JobConfig.model_validate({"data": {"format": "synthetic"}, "resources": resources})
    there = describe_machine_elsewhere(job)
    # Four cores here copy 16 GB/s together, so one of them 4 GB/s, and two of them 8 GB/s.
    topology = request_here(there, resources=resources).topology
    assert (topology.cores_per_rank, topology.memory_bandwidth, topology.flops) == (2, 8e9, 1e11)
    assert dict(topology.sources)["memory_bandwidth"] == "default"
    assert list_notes(job, there) == []
    on_gpus = {"workers_per_node": 8, "gpus_per_worker": 1}
    there = describe_machine_elsewhere(job.model_copy(update={"resources": ResourcesConfig.model_validate(on_gpus)}))
    assert request_here(there, resources=on_gpus).topology.memory_bytes == 80_000_000_000


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_node_has_one_launch_process_beside_its_ranks(ranks: int):
    resources = {"nodes": 2, "workers_per_node": ranks}
    dense = request_for(resources=resources, batch={"global_size": 384}).dense
    # 256 MiB, divided among the ranks of a node and rounded up.
    assert dense.memory_bytes["launch process"] == {1: 268_435_456, 2: 134_217_728, 3: 89_478_486}[ranks]
    assert dense.memory_bytes["program"] == 335_544_320
    on_gpus = request_for(resources=resources | {"gpus_per_worker": 1}, batch={"global_size": 384}).dense
    assert "launch process" not in on_gpus.memory_bytes
    assert on_gpus.host_memory_bytes == ranks * 3 * 2**30 + 268_435_456


def test_a_plan_that_does_not_hold_is_no_plan(monkeypatch: pytest.MonkeyPatch):
    def without_its_last_block(request: PlanRequest) -> Plan:
        plan = make_plan(request)
        last = replace(plan.tables[-1], blocks=plan.tables[-1].blocks[:-1])
        return replace(plan, tables=(*plan.tables[:-1], last))

    monkeypatch.setattr("dlrm.planning.request.make_plan_or_refuse", without_its_last_block)
    with pytest.raises(InvalidPlanError, match="b: its blocks have 0 cells"):
        make_checked_plan(resolve(JobConfig.model_validate({"data": {"format": "synthetic"}})), TABLES, 13, HERE)


@pytest.mark.parametrize(("precision", "flops"), [("fp32", 1e11), ("bf16", 4e11)])
def test_the_dense_part_is_as_fast_as_its_cores(precision: str, flops: float):
    request = request_for(precision=precision, resources={"threads_per_worker": 2, "workers_per_node": 1})
    # Of two cores, at half of what matrix products reach.
    assert request.topology.flops == flops


def test_what_the_document_says_of_the_machine_counts():
    topology = request_for(sharding={"topology": {"memory_bandwidth": 5e9, "flops": 7e9}}).topology
    assert (topology.memory_bandwidth, topology.flops) == (5e9, 7e9)
    assert dict(topology.sources)["memory_bandwidth"] == "job"
    assert dict(topology.sources)["intra_node_bandwidth"] == "measured"


@pytest.mark.parametrize(
    ("sharding", "resources", "transport"),
    [
        ({}, {}, "memory"),
        ({"transport": "network"}, {}, "network"),
        ({}, {"nodes": 2}, "network"),
        ({"transport": "torchrec"}, {}, "torchrec"),
        ({"topology": {"gpu_memory": "80GB"}}, {"gpus_per_worker": 1}, "torchrec"),
    ],
)
def test_ranks_of_one_machine_share_memory_and_gpus_go_through_torchrec(
    sharding: dict[str, Any], resources: dict[str, Any], transport: str
):
    assert request_for(sharding=sharding, resources=resources).transport == transport


def test_gpus_that_nobody_has_described_are_assumed_to_be_a100s(monkeypatch: pytest.MonkeyPatch):
    topology = request_for(resources={"gpus_per_worker": 1}).topology
    assert (topology.memory_bytes, topology.memory_bandwidth) == (80_000_000_000, 2e12)
    assert dict(topology.sources)["memory_bytes"] == "default"

    # The smallest of those that are here counts, and what the job says counts more.
    monkeypatch.setattr("hostinfo.limits.get_gpu_memory_bytes", lambda: (25_000_000_000, 24_000_000_000))
    on_gpus = {"data": {"format": "synthetic"}, "resources": {"gpus_per_worker": 1}}
    here = describe_machine(JobConfig.model_validate(on_gpus))
    measured = request_here(here, resources={"gpus_per_worker": 1}).topology
    assert (measured.memory_bytes, dict(measured.sources)["memory_bytes"]) == (24_000_000_000, "measured")
    in_job = request_for(resources={"gpus_per_worker": 1}, sharding={"topology": {"gpu_memory": "40GB"}}).topology
    assert (in_job.memory_bytes, dict(in_job.sources)["memory_bytes"]) == (40_000_000_000, "job")


def test_a_run_does_not_assume_the_memory_of_its_gpus(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hostinfo.limits.get_gpu_memory_bytes", lambda: ())
    job = JobConfig.model_validate({"data": {"format": "synthetic"}, "resources": {"gpus_per_worker": 1}})
    with pytest.raises(DataError, match=r"sharding\.topology\.gpu_memory: .*nvidia-smi does not answer"):
        plan_tables(resolve(job), DataSchema(13, (Feature("a", 10, False),)))


def test_attention_over_prepared_rows_without_sequences_is_refused() -> None:
    model = {"attention": {"kind": "din"}}
    job = JobConfig.model_validate({"data": {"format": "packed", "train": ["rows"]}, "model": model})
    with pytest.raises(DataError, match=r"model\.attention: is over sequences, and the rows have none") as caught:
        plan_tables(resolve(job), DataSchema(13, (Feature("a", 10, False),)))
    assert caught.value.field == "model.attention"


def test_the_cpus_of_this_machine_are_not_measured_for_a_job_on_gpus(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sharding.planner.machine.load_speeds", lambda: pytest.fail("it was measured"))
    document = {"resources": {"gpus_per_worker": 1}, "sharding": {"topology": {"gpu_memory": "80GB"}}}
    job = JobConfig.model_validate({"data": {"format": "synthetic"}, **document})
    request, plan = make_checked_plan(resolve(job), TABLES, 13, describe_machine(job))
    assert request.topology.device == "cuda"
    assert len(plan.tables) == 2


def test_hashed_columns_have_known_tables():
    schema = {"dense": [{"name": "d"}], "categorical": [{"name": "c{}", "count": 2}, {"name": "x", "multi_hot": True}]}
    data = {"train": ["a.parquet"], "format": "parquet", "schema": schema}
    known = JobConfig.model_validate(
        {"data": {**data, "vocabulary": {"columns": {"c*": {"hash_size": 7}, "x": {"hash_size": 9}}}}}
    )
    sizes = find_sizes(resolve(known), None)
    assert [(table.name, table.num_rows, table.ids_per_sample) for table in sizes.tables] == [
        ("c0", 7, 1.0),
        ("c1", 7, 1.0),
        ("x", 9, 8.0),
    ]
    counted = JobConfig.model_validate({"data": {**data, "vocabulary": {"columns": {"c*": {"hash_size": 7}}}}})
    with pytest.raises(UnknownSizesError, match=r"the tables of x are unknown .* or set a hash_size"):
        find_sizes(resolve(counted), None)
    warm = JobConfig.model_validate({"data": counted.data, "run": {"warm_start": {"from": "old"}}})
    with pytest.raises(UnknownSizesError, match=r"`dlrm prepare JOB --output DIRECTORY --extend MODEL`.*\"packed\"$"):
        find_sizes(resolve(warm), None)


def test_ranges_and_parts_of_times_have_tables_that_the_document_bounds():
    categorical = [{"name": "age", "bucketize": 32}, {"name": "ts", "time_part": "hour"}, {"name": "site"}]
    data = {"train": ["a.csv"], "format": "csv", "schema": {"categorical": categorical[:2]}}
    sizes = find_sizes(resolve(JobConfig.model_validate({"data": data})), None)
    assert [(table.name, table.num_rows) for table in sizes.tables] == [("age:buckets", 33), ("ts:hour", 25)]
    job = JobConfig.model_validate({"data": {**data, "schema": {"categorical": categorical}}})
    with pytest.raises(UnknownSizesError, match="the tables of site are unknown"):
        find_sizes(resolve(job), None)


def test_a_training_gets_tables_by_their_names_in_models():
    schema = DataSchema(1, (Feature("user.id", 50), Feature("type", 60)))
    document = {"data": {"format": "synthetic"}, "sharding": {"tables": [{"pattern": "user.*", "type": "row_wise"}]}}
    plan = plan_tables(resolve(JobConfig.model_validate(document)), schema).plan
    assert [table.table.name for table in plan.tables] == ["user%2Eid", "%74ype"]
    assert (plan.tables[0].sharding_type, plan.tables[0].reason) == ("row_wise", "set by the job")


def test_a_training_without_a_plan_names_the_field():
    schema = DataSchema(1, (Feature("a", 50),))
    document = {"data": {"format": "synthetic"}, "sharding": {"tables": [{"pattern": "b", "type": "row_wise"}]}}
    with pytest.raises(DataError) as caught:
        plan_tables(resolve(JobConfig.model_validate(document)), schema)
    assert caught.value.field == "sharding.tables.0.pattern"


def test_rows_of_int8_are_proposed_to_documents_that_may_have_them():
    assert request_for().may_be_int8
    for section in ({"averaging": {}}, {"sharding": {"transport": "torchrec"}}, {"sharding": {"table_dtype": "int8"}}):
        assert not request_for(**section).may_be_int8
    assert {table.dtype for table in request_for(sharding={"table_dtype": "int8"}).tables} == {"int8"}


def test_tables_in_files_are_proposed_to_documents_that_may_have_them():
    memory = {"resources": {"memory": "1GiB"}}
    recalibrated = {"recalibrate": "platt", "validation_fraction": 0.1}
    assert request_for(**memory).may_lie_in_files
    for section in ({"averaging": {}}, {"run": recalibrated}, {"sharding": {"transport": "torchrec"}}):
        assert not request_for(**memory, **section).may_lie_in_files
    assert request_for(**memory, sharding={"resident_memory": "64MiB"}).resident_bytes == 2**26
