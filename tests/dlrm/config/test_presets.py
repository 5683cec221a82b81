"""Presets: values for the fields that a document leaves out."""

from typing import Any

import pytest

from dlrm.config import PRESETS, ConfigError, DataFacts, JobConfig, JobSpec, make_identity, parse_job, resolve
from dlrm.planning.shortages import RowCounts, list_shortages

DATA: dict[str, Any] = {"data": {"train": ["day.tsv"]}, "run": {"epochs": 1}}


def parse(**sections: Any) -> JobSpec:
    return parse_job({**DATA, "preset": "large_batch", **sections})


def decide(num_rows: int, **sections: Any) -> JobConfig:
    return resolve(parse(**sections), facts=DataFacts(num_train_rows=num_rows)).job


def get(document: Any, field: str) -> Any:
    for name in field.split("."):
        document = document[name]
    return document


def test_a_preset_fills_every_field_of_its_own_that_the_document_leaves_out():
    document = parse().model_dump(mode="json")
    for field, entry in PRESETS["large_batch"].items():
        assert get(document, field) == entry.value, field


def test_what_the_document_states_wins_over_the_preset_also_auto():
    job = parse(dense_optimizer={"schedule": {"decay": "cosine"}}, table_optimizer={"learning_rate": "auto"})
    assert job.dense_optimizer.schedule.decay == "cosine"
    assert (job.dense_optimizer.learning_rate, job.dense_optimizer.schedule.scaling) == (0.016, "sqrt")
    assert job.table_optimizer.learning_rate == "auto"


@pytest.mark.parametrize(
    "stated", [{"learning_rate": 0.5}, {"schedule": {"scaling": "none"}}, {"schedule": {"base_batch": 100}}]
)
def test_a_rate_or_a_scaling_of_the_document_keeps_the_meaning_that_it_has_without_a_preset(stated: dict[str, Any]):
    job, plain = parse(dense_optimizer=stated), parse_job({**DATA, "dense_optimizer": stated})
    assert job.dense_optimizer.learning_rate == plain.dense_optimizer.learning_rate
    for field in ("base_batch", "scaling"):
        assert getattr(job.dense_optimizer.schedule, field) == getattr(plain.dense_optimizer.schedule, field)
    assert job.dense_optimizer.schedule.decay == "wsd"


def test_another_optimizer_than_the_presets_has_its_own_defaults():
    with_preset = parse(dense_optimizer={"name": "lamb"})
    without = parse_job({**DATA, "dense_optimizer": {"name": "lamb"}})
    assert with_preset.dense_optimizer == without.dense_optimizer
    assert with_preset.table_optimizer != without.table_optimizer


@pytest.mark.parametrize(
    ("num_rows", "batch"),
    [(131_000_000, 131_072), (2_000_000_000, 524_288), (16_000_000, 16_384), (2_000_000, 2048), (1000, 256)],
)
def test_the_batch_follows_the_rows_so_that_there_are_enough_steps(num_rows: int, batch: int):
    assert decide(num_rows).batch.global_size == batch


def test_a_preset_with_all_its_values_stated_is_the_same_run_without_it():
    job = decide(131_000_000)
    stated = JobConfig.model_validate(job.model_dump(mode="json") | {"preset": None})
    assert make_identity(stated) == make_identity(job)
    assert JobConfig.model_validate(job.model_dump(mode="json")) == job


def test_each_value_of_a_preset_is_told_with_its_reason_and_what_the_document_states_is_not():
    resolved = resolve(parse(table_optimizer={"learning_rate": 0.5}), facts=DataFacts(num_train_rows=10**6))
    told = {decision.field: decision.reason for decision in resolved.decisions}
    assert told["dense_optimizer.learning_rate"].startswith("preset large_batch: ")
    assert "table_optimizer.learning_rate" not in told


def test_an_unknown_preset_is_an_error_that_names_those_there_are():
    with pytest.raises(ConfigError) as raised:
        parse(preset="huge_batch")
    [fault] = raised.value.errors
    assert fault.field == "preset"
    assert "large_batch" in str(fault)


def test_too_few_steps_for_the_batch_are_told_with_a_batch_that_has_enough():
    job = decide(131_000_000, batch={"global_size": 524_288})
    assert list_shortages(job, RowCounts(524_288 * 800)) == []
    [few] = list_shortages(job, RowCounts(131_000_000))
    assert few.name == "few_steps"
    assert "only 250 steps of 524,288 samples" in few.message
    assert "at most 131,072 for 131,000,000 training rows" in few.message


def test_rows_that_are_too_few_for_any_large_batch_are_not_told_of_a_smaller_one():
    assert list_shortages(decide(100_000), RowCounts(100_000)) == []
