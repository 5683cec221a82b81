"""What a document may say of plans, and of tables whose sizes it tells."""

from typing import Any

import pytest

from dlrm.config import ConfigError, Counting, Hashing, make_identity, parse_job

SYNTHETIC: dict[str, Any] = {"data": {"format": "synthetic"}}
SCHEMA: dict[str, Any] = {"label": "y", "categorical": [{"name": "u_{}", "count": 3, "type": "integer"}, {"name": "v"}]}


def faults_of(**document: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        parse_job({**SYNTHETIC, **document})
    return {error.field: str(error) for error in caught.value.errors}


def parquet(schema: dict[str, Any], vocabulary: dict[str, Any]) -> dict[str, Any]:
    return {"data": {"train": ["a"], "format": "parquet", "schema": schema, "vocabulary": vocabulary}}


@pytest.mark.parametrize("kind", ["column_wise", "table_column_wise", "grid"])
def test_split_rows_need_an_optimizer_that_allows_them(kind: str):
    assert "adagrad or sgd" in faults_of(sharding={"plan": kind})["sharding.plan"]
    rules = {"tables": [{"pattern": "*", "type": kind}]}
    assert "rowwise_adagrad keeps one number" in faults_of(sharding=rules)["sharding.tables.0.type"]
    for optimizer in ("sgd", "adagrad"):
        parse_job({**SYNTHETIC, "sharding": {"plan": kind}, "table_optimizer": {"name": optimizer}})


@pytest.mark.parametrize(
    ("sharding", "field", "words"),
    [
        ({"plan": "heap_wise"}, "sharding.plan", "'heap_wise' is not one of the choices"),
        ({"plan": "rowwise"}, "sharding.plan", "did you mean 'row_wise'?"),
        ({"plan": "GRID"}, "sharding.plan", "did you mean 'grid'?"),
        ({"plan": 3}, "sharding.plan", "'grid' or 'data_parallel'"),
        ({"tables": [{"pattern": "*", "type": "rowwise"}]}, "sharding.tables.0.type", "'auto', 'table_wise', 'column"),
        ({"tables": [{"pattern": "*"}] * 1001}, "sharding.tables", "has 1,001 entries (valid: at most 1,000)"),
        (
            {"tables": [{"pattern": "*", "type": "row_wise", "ranks": [2]}]},
            "sharding.tables.0.ranks",
            "ranks from 0 to 1",
        ),
        (
            {"tables": [{"pattern": "*", "type": "row_wise", "ranks": []}]},
            "sharding.tables.0.ranks",
            "is empty (valid: at least 1, or null)",
        ),
        ({"tables": [{"type": "row_wise"}]}, "sharding.tables.0.pattern", "required"),
        ({"topology": {"gpu_memory": "80 bananas"}}, "sharding.topology.gpu_memory", "8GiB"),
        ({"topology": {"flops": 0.0}}, "sharding.topology.flops", "greater than or equal to 1,000,000"),
        ({"topology": {"memory_bandwidth": 1e-320}}, "sharding.topology.memory_bandwidth", "greater than or equal to"),
        ({"topology": {"intra_node_bandwidth": 1e308}}, "sharding.topology.intra_node_bandwidth", "less than or equal"),
        ({"topology": {"gpu_memory": 0}}, "sharding.topology.gpu_memory", 'should be from "1MiB" to "1EiB", got 0'),
    ],
)
def test_what_is_no_plan_is_named(sharding: dict[str, Any], field: str, words: str):
    assert words in faults_of(sharding=sharding)[field]


def test_ranks_on_several_machines_or_gpus_share_no_memory():
    for resources in ({"nodes": 2}, {"gpus_per_worker": 1}):
        found = faults_of(sharding={"transport": "memory"}, resources=resources)
        assert "share no memory" in found["sharding.transport"]


def test_the_network_transport_is_for_cpus():
    found = faults_of(sharding={"transport": "network"}, resources={"gpus_per_worker": 1})
    assert 'valid: "auto" or "torchrec"' in found["sharding.transport"]
    parse_job({**SYNTHETIC, "sharding": {"transport": "torchrec"}, "resources": {"gpus_per_worker": 1}})


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        ({"sharding": {"plan": "column_wise"}, "table_optimizer": {"name": "sgd"}}, "sharding.plan", "row_wise"),
        ({"sharding": {"plan": "data_parallel"}}, "sharding.plan", "splits or copies rows"),
        (
            {"sharding": {"tables": [{"pattern": "*", "type": "data_parallel"}]}},
            "sharding.tables.0.type",
            "auto, table_wise, row_wise, table_row_wise",
        ),
        ({"sharding": {"transport": "torchrec"}}, "sharding.transport", '"auto"'),
        ({"resources": {"gpus_per_worker": 1}}, "resources.gpus_per_worker", "GPUs train tables in fp32 alone"),
        ({"averaging": {}}, "averaging", "null"),
    ],
)
def test_what_needs_rows_of_fp32_is_refused_with_rows_of_int8(document: dict[str, Any], field: str, words: str):
    sharding = {"table_dtype": "int8", **document.pop("sharding", {})}
    message = faults_of(sharding=sharding, **document)[field]
    assert words in message
    assert "or sharding.table_dtype fp32" in message


def test_a_run_keeps_the_number_format_of_its_tables():
    fp32, int8 = (parse_job({**SYNTHETIC, "sharding": {"table_dtype": dtype}}) for dtype in ("fp32", "int8"))
    assert make_identity(fp32) == make_identity(parse_job(SYNTHETIC))
    assert make_identity(int8) != make_identity(fp32)


def test_plans_may_change_from_one_attempt_to_the_next():
    sharding = {
        "plan": "row_wise",
        "tables": [{"pattern": "C1", "type": "data_parallel"}],
        "transport": "memory",
        "resident_memory": "1GiB",
        "topology": {"flops": 1e9},
    }
    assert make_identity(parse_job({**SYNTHETIC, "sharding": sharding})) == make_identity(parse_job(SYNTHETIC))


def test_a_run_of_columns_is_written_once():
    schema = parse_job(parquet(SCHEMA, {})).data.raw_schema
    assert [column.name for column in schema.categorical] == ["u_0", "u_1", "u_2", "v"]
    assert [column.type for column in schema.categorical] == ["integer"] * 3 + ["string"]


def test_columns_written_out_are_read_back_as_they_are():
    job = parse_job(parquet(SCHEMA, {}))
    assert parse_job(job.model_dump(mode="json")) == job


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({"name": "u", "count": 3}, "data.schema.categorical.1.name"),
        ({"name": "u_{}", "count": 0}, "data.schema.categorical.1.count"),
        ({"name": "u_{}", "count": True}, "data.schema.categorical.1.count"),
        ({"name": "u_{}", "count": 10_001}, "data.schema.categorical.1.count"),
    ],
)
def test_a_run_of_columns_that_are_not_told_apart_is_named(entry: dict[str, Any], field: str):
    found = faults_of(**parquet({"categorical": [{"name": "v"}, entry]}, {}))
    assert field in found


def test_more_columns_than_there_may_be_are_refused_before_they_are_written_out():
    """Written out these would be 300 million."""
    entries = [{"name": f"a{number}_{{}}", "count": 10_000} for number in range(30_000)]
    for kind in ("dense", "categorical"):
        found = faults_of(**parquet({kind: entries}, {}))
        assert "names 300,000,000 columns" in found[f"data.schema.{kind}"]


def test_as_many_columns_as_there_may_be_are_read():
    schema = parse_job(parquet({"dense": [{"name": "d{}", "count": 9999}, {"name": "e"}]}, {})).data.raw_schema
    assert [column.name for column in schema.dense[-2:]] == ["d9998", "e"]


def test_a_run_of_columns_with_long_names_is_refused_before_it_is_written_out():
    found = faults_of(**parquet({"categorical": [{"name": "u" * 1_000_000 + "{}", "count": 10_000}]}, {}))
    assert "makes names of 1,000,004 characters" in found["data.schema.categorical.0.name"]
    longest = "u" * 199 + "{}"
    parse_job(parquet({"categorical": [{"name": longest, "count": 10}]}, {}))
    assert "201 characters" in str(faults_of(**parquet({"categorical": [{"name": longest, "count": 11}]}, {})))


def test_what_is_wrong_with_a_run_of_columns_is_told_once():
    entry = {"name": "u{}", "count": 10_000, "type": "strng", "extra": "x" * 1000}
    found = faults_of(**parquet({"categorical": [entry]}, {}))
    assert set(found) == {"data.schema.categorical.0.type", "data.schema.categorical.0.extra"}


def test_patterns_that_would_take_long_to_match_are_refused():
    schema = {"categorical": [{"name": "u{}", "count": 10_000}]}
    patterns = {f"u{number}*": {"hash_size": 50} for number in range(101)}
    found = faults_of(**parquet(schema, {"columns": patterns}))
    assert "101 patterns for 10,000 columns" in found["data.vocabulary.columns"]
    assert "up to 100 patterns" in found["data.vocabulary.columns"]
    names = {f"u{number}": {"hash_size": 50} for number in range(10_000)}
    parse_job(parquet(schema, {"columns": names}))
    found = faults_of(**parquet(SCHEMA, {"columns": {"*u" * 500: {"hash_size": 50}}}))
    assert "1,000 characters" in found["data.vocabulary.columns"]


def test_a_pattern_decides_for_the_columns_it_matches():
    columns = {"u_*": {"hash_size": 50}, "u_1": {"min_count": 7}}
    vocabulary = parse_job(parquet(SCHEMA, {"columns": columns})).data.vocabulary
    assert [vocabulary.get_rule(name) for name in ("u_0", "u_1", "v")] == [Hashing(50), Counting(7), Counting(2)]


def test_a_pattern_of_no_column_is_named():
    found = faults_of(**parquet(SCHEMA, {"columns": {"w_*": {"hash_size": 50}}}))
    assert "'w_*' matches no categorical column" in found["data.vocabulary.columns"]


def test_of_a_pattern_that_differs_in_case_alone_the_columns_are_named():
    found = faults_of(**parquet(SCHEMA, {"columns": {"U_*": {"hash_size": 50}}}))["data.vocabulary.columns"]
    assert "names are case-sensitive: did you mean u_0, u_1, u_2?" in found


def test_of_many_columns_few_are_listed():
    schema = {"categorical": [{"name": "u{}", "count": 1000}]}
    found = faults_of(**parquet(schema, {"columns": {"w": {"hash_size": 50}}}))["data.vocabulary.columns"]
    assert found.endswith("(valid: a name or a pattern that matches one of u0, u1, u10, u100, u101, … (1,000 in all))")


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"resources": {"gpus_per_worker": 1}}, "resources.gpus_per_worker"),
        ({"resources": {"nodes": 2}}, "resources.nodes"),
        ({"resources": {"nodes": {"min": 1, "max": 2}}}, "resources.nodes"),
        ({"sharding": {"transport": "network"}}, "sharding.transport"),
        ({"averaging": {}}, "averaging"),
        ({"run": {"blend": "logistic"}}, "run.blend"),
        ({"run": {"recalibrate": "platt"}}, "run.recalibrate"),
        ({"run": {"sharpness": {}}}, "run.sharpness"),
        ({"run": {"deltas": True}}, "run.deltas"),
        ({"sharding": {"resident_memory": "8GiB"}}, "sharding.resident_memory"),
    ],
)
def test_what_needs_all_tables_in_memory_is_refused_with_tables_in_files(document: dict[str, Any], field: str):
    sharding = {"resident_memory": "1GiB", **document.pop("sharding", {})}
    message = faults_of(sharding=sharding, **document)[field]
    assert "valid: " in message
    assert "null" in message
