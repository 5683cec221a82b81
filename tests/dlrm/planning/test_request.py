"""What a job's document says to a plan."""

from typing import Any

import pytest

from dlrm.build import plan_tables
from dlrm.config import ModelConfig, parse_job, resolve
from dlrm.data.errors import DataError
from dlrm.data.rows import DataSchema, Feature
from dlrm.model import make_dense_part
from dlrm.planning.dense_size import dense_size
from dlrm.planning.request import planned, request_of
from dlrm.planning.sizes import UnknownSizesError, sizes_of
from sharding.plan import PlanError, PlanRequest, Table
from sharding.plan.machine import Speeds

SPEEDS = Speeds(one_copy=1e10, all_copies=1.6e10, loopback=2e9, flops=1e11, flops_bf16=4e11)
TABLES = [Table("a", 100, 64), Table("b", 10_000, 64)]


def request_for(**document: Any) -> PlanRequest:
    return request_of(resolve(parse_job({"data": {"format": "synthetic"}, **document})), TABLES, 13, SPEEDS)


def test_ranks_share_the_bandwidth_of_the_machine():
    topology = request_for(resources={"workers_per_node": 4, "threads_per_worker": 1}).topology
    assert topology.memory_bandwidth == 4e9
    assert request_for(resources={"workers_per_node": 1}, batch={"global_size": 64}).topology.memory_bandwidth == 1e10


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
        ({"topology": {"gpu_memory": "80GB"}}, {"gpus_per_worker": 1}, "network"),
    ],
)
def test_ranks_of_one_machine_without_gpus_share_memory(
    sharding: dict[str, Any], resources: dict[str, Any], transport: str
):
    assert request_for(sharding=sharding, resources=resources).transport == transport


def test_gpus_that_nobody_has_told_of_are_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sharding.plan.machine.gpu_memory_bytes", lambda: ())
    with pytest.raises(PlanError) as caught:
        request_for(resources={"gpus_per_worker": 1})
    assert caught.value.field == "topology.gpu_memory"


def test_the_cpus_of_this_machine_are_not_measured_for_a_job_on_gpus(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sharding.plan.machine.speeds", lambda: pytest.fail("it was measured"))
    document = {"resources": {"gpus_per_worker": 1}, "sharding": {"topology": {"gpu_memory": "80GB"}}}
    request, plan = planned(resolve(parse_job({"data": {"format": "synthetic"}, **document})), TABLES, 13)
    assert request.topology.device == "cuda"
    assert len(plan.tables) == 2


@pytest.mark.parametrize("architecture", ["dlrm", "dcn_v2"])
@pytest.mark.parametrize(("num_dense", "num_features"), [(13, 5), (0, 5), (13, 0)])
def test_the_dense_part_is_counted_as_it_is_built(architecture: str, num_dense: int, num_features: int):
    config = ModelConfig.model_validate({"architecture": architecture})
    built = make_dense_part(config, num_dense, num_features, 0)
    num_built = sum(parameter.numel() for parameter in built.parameters())
    assert dense_size(config, num_dense, num_features).num_parameters == num_built


def test_hashed_columns_have_known_tables():
    schema = {"dense": [{"name": "d"}], "categorical": [{"name": "c{}", "count": 2}, {"name": "x", "multi_hot": True}]}
    data = {"train": ["a.parquet"], "format": "parquet", "schema": schema}
    known = parse_job({"data": {**data, "vocabulary": {"columns": {"c*": {"hash_size": 7}, "x": {"hash_size": 9}}}}})
    sizes = sizes_of(resolve(known), None)
    assert [(table.name, table.num_rows, table.ids_per_sample) for table in sizes.tables] == [
        ("c0", 7, 1.0),
        ("c1", 7, 1.0),
        ("x", 9, 8.0),
    ]
    counted = parse_job({"data": {**data, "vocabulary": {"columns": {"c*": {"hash_size": 7}}}}})
    with pytest.raises(UnknownSizesError, match="the tables of x get"):
        sizes_of(resolve(counted), None)


def test_a_training_gets_tables_by_their_names_in_models():
    schema = DataSchema(1, (Feature("user.id", 50), Feature("type", 60)))
    document = {"data": {"format": "synthetic"}, "sharding": {"tables": [{"pattern": "user.*", "type": "row_wise"}]}}
    plan = plan_tables(resolve(parse_job(document)), schema).plan
    assert [table.table.name for table in plan.tables] == ["user%2Eid", "%74ype"]
    assert (plan.tables[0].sharding_type, plan.tables[0].reason) == ("row_wise", "as asked")


def test_a_training_without_a_plan_names_the_field():
    schema = DataSchema(1, (Feature("a", 50),))
    document = {"data": {"format": "synthetic"}, "sharding": {"tables": [{"pattern": "b", "type": "row_wise"}]}}
    with pytest.raises(DataError) as caught:
        plan_tables(resolve(parse_job(document)), schema)
    assert caught.value.field == "sharding.tables.0.pattern"
