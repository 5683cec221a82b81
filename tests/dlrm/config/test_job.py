import json
from typing import Any

import pytest

from dlrm.config import (
    ColumnVocabularyConfig,
    ConfigError,
    Counting,
    Hashing,
    JobConfig,
    JobSpec,
    ResolvedJob,
    VocabularyConfig,
    parse_job,
    resolve,
)

DATA = {"data": {"train": ["clicks.tsv"]}}
CSV = {"train": ["clicks.csv"], "format": "csv"}
XY = {"dense": [{"name": "x"}], "categorical": [{"name": "y"}]}

LISTS = {"dense": [{"name": "x"}], "categorical": [{"name": "y"}, {"name": "z", "multi_hot": True}]}


def counted(column: str) -> dict[str, Any]:
    return {"columns": {column: {"min_count": 1}}}


def both(column: str) -> dict[str, Any]:
    return {"columns": {column: {"min_count": 1, "hash_size": 5}}}


def errors_of(document: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        parse_job(document)
    return {error.field: str(error) for error in caught.value.errors}


def test_every_field_but_the_training_data_has_a_default():
    job = parse_job(DATA)
    assert job.model.embedding_dim == "auto"
    assert job.resources.world_size == 2
    assert job.resources.memory == 8 * 2**30


def test_a_document_with_its_defaults_filled_in_is_the_same_job():
    job = parse_job({**DATA, "resources": {"memory": "4GiB"}})
    assert parse_job(json.loads(job.model_dump_json())) == job


@pytest.mark.parametrize(
    ("document", "field", "hint"),
    [
        ({}, "data", "required"),
        ({"data": {}}, "data.train", "names no files"),
        (
            {"data": 7},
            "data",
            "should be an object (a table in TOML), got 7 (valid: a table with the fields train, eval, ",
        ),
        ({**DATA, "run": True}, "run", ", trackers, seed, or {} for its defaults)"),
        (
            {"data": {"train": ["a"], "format": "csv", "schema": {"label": "y", "dense": ["age"]}}},
            "data.schema.dense.0",
            "got 'age' (valid: a table such as {name = …}, with the fields name, transform, decimal_mark, element)",
        ),
        (
            {**DATA, "batch": {"schedule": [64]}},
            "batch.schedule.0",
            "{until_fraction = …, global_size = …}, with the fields until_fraction, global_size)",
        ),
        ({**DATA, "deadline_from": "submission"}, "deadline_from", 'without deadline_seconds (valid: "start", or a'),
        ({**DATA, "deadline_from": "now", "deadline_seconds": 1}, "deadline_from", "'start' or 'submission'"),
        (
            {**DATA, "variance_reduction": True},
            "variance_reduction",
            "gamma, beta3, scale, control, or {} for its defaults, or null)",
        ),
        (
            {**DATA, "variance_reduction": {"control": "none"}},
            "variance_reduction.control",
            "(valid: 'mean' or 'shuffled', or null)",
        ),
        ({**DATA, "variance_reduction": {"gamma": None}}, "variance_reduction.gamma", "should be a number, got null"),
        ({**DATA, "batchh": {}}, "batchh", "did you mean 'batch'?"),
        ({**DATA, "(batch)": {}}, "(batch)", "unknown field; did you mean 'batch'?"),
        ({**DATA, "": {}}, "", "unknown field"),
        ({"data": {"train": ["a"], "evall": []}}, "data.evall", "did you mean 'eval'?"),
        ({"data": {"train": ["a", 3]}}, "data.train.1", "should be a string"),
        ({"data": {"train": "a.tsv"}}, "data.train", '(valid: ["a.tsv"])'),
        ({"data": {"train": ["a"], "synthetic": {}}}, "data.synthetic", "only with format synthetic"),
        ({"data": {"format": "synthetic", "train": ["a"]}}, "data.train", "reads no files"),
        (
            {"data": {"format": "tfrecord", "train": ["a"]}},
            "data.format",
            "'criteo_tsv', 'parquet', 'csv', 'jsonl', 'arrow', 'packed'",
        ),
        ({"data": {"format": "parquet", "train": ["a"]}}, "data.schema", "dlrm prepare --infer"),
        ({"data": {"train": ["a"], "schema": {"dense": [{"name": "x"}]}}}, "data.schema", '"parquet" or "csv"'),
        ({"data": {"train": ["a"], "weight_column": "w"}}, "data.weight_column", '"parquet" or "csv"'),
        ({"data": {**CSV, "schema": {"dens": []}}}, "data.schema.dens", "did you mean 'dense'?"),
        ({"data": {**CSV, "schema": {}}}, "data.schema.categorical", "no columns except the label"),
        (
            {"data": {**CSV, "schema": {"dense": [{"name": "x", "transfrom": "log"}]}}},
            "data.schema.dense.0.transfrom",
            "transform",
        ),
        ({"data": {**CSV, "schema": {"dense": [{"name": "label"}]}}}, "data.schema", "names 'label' twice"),
        ({"data": {**CSV, "schema": {**XY, "columns": ["x", "label"]}}}, "data.schema.columns", "does not list 'y'"),
        (
            {"data": {**CSV, "schema": {**XY, "columns": ["x", "y", "y", "label"]}}},
            "data.schema.columns",
            "column twice",
        ),
        ({"data": {**CSV, "schema": {**XY, "delimiter": '"'}}}, "data.schema.delimiter", "ASCII characters"),
        ({"data": {**CSV, "schema": XY, "weight_column": "x"}}, "data.weight_column", "another column"),
        (
            {"data": {**CSV, "schema": {**XY, "columns": ["x", "y", "label"]}, "weight_column": "w"}},
            "data.weight_column",
            "'w' is not in schema.columns",
        ),
        (
            {"data": {**CSV, "schema": {**LISTS, "delimiter": "|"}}},
            "data.schema.categorical.1.separator",
            "'|' is also in schema.delimiter",
        ),
        ({"data": {"train": ["a", ""]}}, "data.train.1", "is empty"),
        ({"data": {"train": ["a"], "eval": [" "]}}, "data.eval.0", "is empty"),
        ({"data": {"train": ["x" * 5000]}}, "data.train.0", "longer than 4,096 characters"),
        (
            {"data": {"train": ["https://host/a.tsv"]}},
            "data.train.0",
            "https:// is not supported (valid: s3:// or gs://",
        ),
        ({"data": {"train": ["S3://bucket/a.tsv"]}}, "data.train.0", "in lower case"),
        (
            {"data": {**CSV, "schema": XY, "vocabulary": counted("x")}},
            "data.vocabulary.columns",
            "a pattern that matches one of y)",
        ),
        ({"data": {"train": ["a"], "vocabulary": both("C1")}}, "data.vocabulary.columns.C1.min_count", "or hash_size"),
        ({"data": {"train": ["a", "b"], "format": "packed"}}, "data.train", "dlrm prepare"),
        ({"data": {"train": ["a"], "format": "packed", "vocabulary": {"min_count": 3}}}, "data.vocabulary", "leave it"),
        ({"data": {"format": "synthetic", "split": "tail"}}, "data.split", '"hash"'),
        ({"data": {"train": ["a"], "max_bad_fraction": 1.0}}, "data.max_bad_fraction", "less than 1"),
        ({"data": {"train": ["a"], "eval_fraction": 1.0}}, "data.eval_fraction", "less than 1"),
        ({**DATA, "batch": {"global_size": 16_383}}, "batch.global_size", "16382 or 16384"),
        ({**DATA, "batch": {"global_size": 1}}, "batch.global_size", "(valid: 2)"),
        ({**DATA, "batch": {"global_size": 2**24 - 1}}, "batch.global_size", "(valid: 16777214 or 16777216)"),
        (
            {**DATA, "batch": {"global_size": 16_384, "schedule": [{"until_fraction": 0.5, "global_size": 16_383}]}},
            "batch.schedule.0.global_size",
            "(valid: 16382)",
        ),
        (
            {**DATA, "batch": {"global_size": 9, "schedule": [{"until_fraction": 0.5, "global_size": 8}]}},
            "batch.global_size",
            "(valid: 10)",
        ),
        (
            {**DATA, "batch": {"global_size": 4, "schedule": [{"until_fraction": 0.5, "global_size": 3}]}},
            "batch.schedule.0.global_size",
            "(valid: 2)",
        ),
        (
            {**DATA, "batch": {"global_size": 2, "schedule": [{"until_fraction": 0.5, "global_size": 1}]}},
            "batch.schedule.0.global_size",
            "(valid: ascending multiples of 2 for all sizes)",
        ),
        (
            {**DATA, "batch": {"global_size": 4096, "growth": {"start_size": 1023}}},
            "batch.growth.start_size",
            "(valid: 1022 or 1024)",
        ),
        (
            {
                **DATA,
                "batch": {"global_size": 4096},
                "resources": {"nodes": {"min": 2, "max": 3}, "workers_per_node": 1},
            },
            "batch.global_size",
            "(valid: 4092 or 4098)",
        ),
        ({**DATA, "batch": {"global_size": 16_384, "chunk_size": 8193}}, "batch.chunk_size", "1 to 8192"),
        ({**DATA, "batch": {"global_size": 16_384, "chunk_size": 0}}, "batch.chunk_size", "1 to 16,777,216"),
        ({**DATA, "batch": {"chunk_size": 1.5}}, "batch.chunk_size", "auto"),
        ({**DATA, "model": {"embedding_dim": 30}}, "model.embedding_dim", "multiple of 4"),
        ({**DATA, "model": {"embedding_dim": 32, "bottom_mlp": [512, 256, 64]}}, "model.bottom_mlp", "[512, 256, 32]"),
        ({**DATA, "model": {"top_mlp": [8, 2]}}, "model.top_mlp", "[8, 1]"),
        ({**DATA, "model": {"top_mlp": [0, 1]}}, "model.top_mlp.0", "greater than or equal to 1"),
        ({**DATA, "precision": "fp8"}, "precision", "'fp32' or 'bf16'"),
        ({**DATA, "dense_optimizer": {"learning_rate": float("nan")}}, "dense_optimizer.learning_rate", "finite"),
        ({**DATA, "dense_optimizer": {"learning_rate": "1"}}, "dense_optimizer.learning_rate", "should be a number"),
        ({**DATA, "dense_optimizer": {"schedule": {"power": 0}}}, "dense_optimizer.schedule.power", "greater than 0"),
        ({**DATA, "resources": {"memory": "8 bananas"}}, "resources.memory", '"8GiB"'),
        ({**DATA, "resources": {"memory": 1.5}}, "resources.memory", "should be a whole number"),
        ({**DATA, "resources": {"workers_per_node": True}}, "resources.workers_per_node", "should be a whole number"),
        ({**DATA, "name": "no spaces"}, "name", "letters, digits"),
        ({**DATA, "run": {"target_auc": 0.5}}, "run.target_auc", "greater than 0.5"),
        ({**DATA, "run": {"label_smoothing": 1.0}}, "run.label_smoothing", "less than 1"),
        (
            [],
            "",
            "should be an object (a table in TOML), got [] (valid: a table such as {data = …}, with the fields data, ",
        ),
    ],
)
def test_a_bad_document_names_the_field_and_what_would_be_valid(document: Any, field: str, hint: str):
    errors = errors_of(document)
    assert list(errors) == [field]
    assert hint in errors[field]


@pytest.mark.parametrize(
    "uri", ["s3://KEY:SECRET@b/x", "s3://KEY:SEC/SECRET@b/x", "gs://SECRET@b/x", "ftp://u:SECRET@h/x"]
)
@pytest.mark.parametrize("form", ["list", "text", "number", "name"])
def test_a_secret_in_a_path_is_refused_and_not_echoed(uri: str, form: str):
    data = {"list": {"train": [uri]}, "text": {"train": uri}, "number": {"train": {uri: 1}}, "name": [uri]}[form]
    errors = errors_of({"data": data})
    assert errors
    assert "SECRET" not in str(errors)


def test_a_separator_matters_only_where_lists_are_text():
    document = {"data": {**CSV, "format": "parquet", "schema": {**LISTS, "delimiter": "|"}}}
    assert parse_job(document).data.format == "parquet"


def test_all_fields_at_fault_are_named_at_once():
    assert set(errors_of({"data": {"train": ["a"], "x": 1}, "precision": 1, "run": {"epochs": 0}})) == {
        "data.x",
        "precision",
        "run.epochs",
    }


def test_a_resolved_job_survives_its_own_json():
    resolved = resolve(parse_job(DATA), data_roots=["/data"])
    assert ResolvedJob.model_validate_json(resolved.model_dump_json()) == resolved


@pytest.mark.parametrize(("global_size", "scale"), [(16_384, 16_384), (524_288, 524_288), (100_000, 131_072), (2, 2)])
def test_the_gradient_scale_is_the_power_of_two_nearest_the_batch(global_size: int, scale: float):
    assert resolve(parse_job({**DATA, "batch": {"global_size": global_size}})).gradient_scale == scale


def test_an_automatic_chunk_never_exceeds_the_share_of_a_rank():
    assert resolve(parse_job({**DATA, "batch": {"global_size": 100}})).chunk_size == 50
    assert resolve(parse_job({**DATA, "batch": {"global_size": 524_288}})).chunk_size == 2048


def test_every_derived_number_carries_its_reason():
    derived = {number.name: number for number in resolve(JobConfig.model_validate(DATA)).derived}
    assert derived["dense_peak_learning_rate"].value == pytest.approx(0.0005 * 8**0.5)
    assert all(number.reason for number in derived.values())


def test_the_dense_rate_follows_the_optimizer_unless_it_is_given():
    def rate(**optimizer: Any) -> float:
        return resolve(parse_job({**DATA, "dense_optimizer": optimizer})).job.dense_optimizer.learning_rate

    assert (rate(), rate(name="adam"), rate(name="sgd")) == (0.0005, 0.0005, 0.1)
    assert rate(name="sgd", learning_rate=0.3) == 0.3


def test_a_log_whose_row_numbers_alone_exceeds_the_memory_is_refused():
    document = {"data": {"format": "synthetic", "synthetic": {"num_rows": 2**40}}}
    errors = errors_of(document)
    assert list(errors) == ["data.synthetic.num_rows"]
    assert "536,870,912" in errors["data.synthetic.num_rows"]


def test_the_schema_describes_every_field():
    def undescribed(model: dict[str, Any], path: str) -> list[str]:
        fields = model.get("properties", {}).items()
        return [f"{path}.{name}" for name, field in fields if not field.get("description") and "$ref" not in field]

    schema = JobSpec.model_json_schema()
    missing = [name for title, model in schema["$defs"].items() for name in undescribed(model, title)]
    assert missing + undescribed(schema, "JobSpec") == []
    assert all(model["description"] for model in schema["$defs"].values())


def test_columns_of_their_own_are_counted_or_hashed_otherwise_than_the_others():
    vocabulary = {"min_count": 3, "columns": {"C1": {"hash_size": 10}, "C2": {"min_count": 1}}}
    counting = parse_job({"data": {"train": ["a"], "vocabulary": vocabulary}}).data.vocabulary
    assert [counting.get_rule(name) for name in ("C1", "C2", "C3")] == [Hashing(10), Counting(1), Counting(3)]
    hashing = VocabularyConfig(hash_size=7, columns={"C2": ColumnVocabularyConfig(min_count=1)})
    assert [hashing.get_rule(name) for name in ("C1", "C2")] == [Hashing(7), Counting(1)]


def test_a_weight_column_of_the_job_stands_in_for_that_of_the_schema():
    data = parse_job({"data": {**CSV, "schema": {**XY, "weight": "w"}, "weight_column": "v"}}).data
    assert data.raw_schema.weight == "v"
    assert parse_job({"data": {**CSV, "schema": {**XY, "weight": "w"}}}).data.raw_schema.weight == "w"


def test_the_schema_is_called_so_in_every_form_of_the_document():
    job = parse_job({"data": {**CSV, "schema": XY}})
    assert job.model_dump(mode="json")["data"]["schema"]["dense"][0]["name"] == "x"
    assert parse_job(json.loads(job.model_dump_json())) == job


@pytest.mark.parametrize(
    ("every", "words"),
    [(0, "should be greater than or equal to 1, got 0"), ("often", "'often' is not one of the choices")],
)
def test_an_error_names_the_kind_that_was_meant_of_a_word_or_a_number(every: object, words: str):
    with pytest.raises(ConfigError) as raised:
        parse_job({"data": {"format": "synthetic"}, "moments": {"every": every}})
    (error,) = raised.value.errors
    assert (error.field, error.message) == ("moments.every", words)


def test_of_very_many_errors_the_first_are_told_and_how_many_there_are_besides():
    with pytest.raises(ConfigError) as caught:
        parse_job({"data": {"format": "synthetic"}, **{f"unknown{number}": 1 for number in range(1500)}})
    *told, last = caught.value.errors
    assert len(told) == 1000
    assert last.message == "and 500 more errors"
