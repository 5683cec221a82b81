"""Presets: values for the fields that a document leaves out."""

import json
from pathlib import Path
from typing import Any

import pytest

from dlrm.config import (
    PRESETS,
    ConfigError,
    DataFacts,
    JobConfig,
    JobSpec,
    ResolvedJob,
    keep_decisions,
    list_scaling,
    make_identity,
    parse_job,
    resolve,
    resolve_with_rows,
)
from dlrm.planning.shortages import RowCounts, list_shortages

DATA: dict[str, Any] = {"data": {"train": ["day.tsv"]}, "run": {"epochs": 1}}
PRESET = PRESETS["large_batch"]
RATE, SCALING = (f"dense_optimizer.{field}" for field in ("learning_rate", "schedule.scaling"))
SCHEDULE = "batch.schedule"
VALUES = {field: entry.value for field, entry in PRESET.values.items() if field != SCHEDULE}
"""Values that do not depend on the rows."""
PAGE = Path(__file__).parents[3] / "docs" / "large-batch.md"


def parse(**sections: Any) -> JobSpec:
    return parse_job({**DATA, "preset": "large_batch", **sections})


def decide(num_rows: int, **sections: Any) -> JobConfig:
    return resolve(parse(**sections), facts=DataFacts(num_train_rows=num_rows)).job


def tell(num_rows: int, **sections: Any) -> dict[str, str]:
    """Return the reason of each field that was decided or filled."""
    resolved = resolve(parse(**sections), facts=DataFacts(num_train_rows=num_rows))
    return {decision.field: decision.reason for decision in resolved.decisions}


def get(document: Any, field: str) -> Any:
    for name in field.split("."):
        document = document[name]
    return document


def state(values: dict[str, Any]) -> dict[str, Any]:
    """Return a document that states these values of dotted fields."""
    document: dict[str, Any] = {}
    for field, value in values.items():
        *sections, name = field.split(".")
        section = document
        for part in sections:
            section = section.setdefault(part, {})
        section[name] = value
    return document


def test_a_preset_fills_every_field_of_its_own_that_the_document_leaves_out():
    document = parse().model_dump(mode="json")
    for field, entry in PRESET.values.items():
        assert get(document, field) == entry.value, field


def test_what_the_document_states_wins_over_the_preset_also_auto():
    job = parse(dense_optimizer={"schedule": {"decay": "cosine"}}, table_optimizer={"learning_rate": "auto"})
    assert job.dense_optimizer.schedule.decay == "cosine"
    assert job.dense_optimizer.learning_rate == PRESET.values[RATE].value
    assert job.dense_optimizer.schedule.scaling == PRESET.values[SCALING].value
    assert job.table_optimizer.learning_rate == "auto"


@pytest.mark.parametrize(
    "stated",
    [
        {"learning_rate": 0.5},
        {"learning_rate": None},
        {"learning_rate": "auto"},
        {"schedule": {"scaling": "none"}},
        {"schedule": {"base_batch": 100}},
        {"schedule": {"scaling": "noise", "noise_scale": 1000}},
    ],
)
def test_a_stated_rate_or_scaling_means_the_same_without_a_preset(stated: dict[str, Any]):
    job, plain = parse(dense_optimizer=stated), parse_job({**DATA, "dense_optimizer": stated})
    assert job.dense_optimizer.learning_rate == plain.dense_optimizer.learning_rate
    for field in ("base_batch", "scaling", "noise_scale"):
        assert getattr(job.dense_optimizer.schedule, field) == getattr(plain.dense_optimizer.schedule, field)
    assert job.dense_optimizer.schedule.decay == "wsd"


def test_a_power_of_the_document_keeps_the_decay_that_has_one():
    schedule = parse(dense_optimizer={"schedule": {"power": 3.0}}).dense_optimizer.schedule
    assert (schedule.decay, schedule.power) == ("polynomial", 3.0)


def test_another_optimizer_than_the_presets_has_its_own_defaults():
    with_preset = parse(dense_optimizer={"name": "lamb"})
    without = parse_job({**DATA, "dense_optimizer": {"name": "lamb"}})
    assert with_preset.dense_optimizer == without.dense_optimizer
    assert with_preset.table_optimizer != without.table_optimizer


def test_a_rate_scales_as_in_the_preset_if_the_document_leaves_it_out():
    ours = {SCALING: PRESET.values[SCALING].value}
    document = {"preset": "large_batch"}
    assert list_scaling(document, ["dense_optimizer"]) == ours
    assert list_scaling(document, ["table_optimizer"]) == list_scaling({}, ["dense_optimizer"]) == {}
    for section in ({"learning_rate": 0.1}, {"name": "lamb"}, {"schedule": {"scaling": "none"}}):
        assert list_scaling({**document, "dense_optimizer": section}, ["dense_optimizer"]) == {}


@pytest.mark.parametrize(
    ("num_rows", "batch"),
    [(131_000_000, 524_288), (2_000_000_000, 524_288), (16_000_000, 65_536), (2_000_000, 8192), (1000, 256)],
)
def test_the_batch_follows_the_rows_so_that_there_are_enough_steps(num_rows: int, batch: int):
    assert decide(num_rows).batch.global_size == batch


def test_a_preset_with_all_its_values_stated_is_the_same_run_without_it():
    job = decide(131_000_000)
    stated = JobConfig.model_validate(job.model_dump(mode="json") | {"preset": None})
    assert make_identity(stated) == make_identity(job)
    assert JobConfig.model_validate(job.model_dump(mode="json")) == job


@pytest.mark.parametrize(("epochs", "batch"), [(0.25, 512), (1, 2048), (4, 8192), ("auto", 2048)])
def test_steps_of_the_run_count_or_of_an_epoch_if_epochs_are_open(epochs: Any, batch: int):
    num_rows = 2048 * PRESET.min_steps if epochs != "auto" else round(2048 * PRESET.min_steps / 0.9) + 2048
    run = {"epochs": epochs}
    assert decide(num_rows, run=run).batch.global_size == batch
    reason = tell(num_rows, run=run)["batch.global_size"]
    span = {0.25: "0.25 epochs", 1: "1 epoch", 4: "4 epochs", "auto": "an epoch"}[epochs]
    assert reason.startswith(f"preset large_batch: for at least {PRESET.min_steps} steps in {span} of ")


@pytest.mark.parametrize("epochs", [0.3, 1, 2.5, "auto"])
@pytest.mark.parametrize("validation_fraction", [0.0, 0.1, "auto"])
@pytest.mark.parametrize("num_ranks", [1, 3])
def test_the_batch_that_a_preset_chooses_is_never_told_to_be_too_large(
    epochs: Any, validation_fraction: Any, num_ranks: int
):
    run = {"epochs": epochs, "validation_fraction": validation_fraction}
    # At the borders, where one row less halves the batch.
    for size in (256, 2048, 524_288):
        for num_rows in (size * PRESET.min_steps - 1, size * PRESET.min_steps, size * PRESET.min_steps + 1):
            job = decide(num_rows, run=run, resources={"workers_per_node": num_ranks})
            assert list_shortages(job, RowCounts(num_rows)) == []


def test_the_validation_rows_make_no_steps():
    num_rows = 2048 * PRESET.min_steps
    assert decide(num_rows, run={"epochs": 1, "validation_fraction": 0.1}).batch.global_size == 1024


def test_rows_that_are_too_few_for_the_smallest_batch_are_told_so():
    assert tell(1000)["batch.global_size"] == (
        f"preset large_batch: for 1 epoch of 1,000 training rows, too few for {PRESET.min_steps} steps: "
        "better without the preset"
    )


def test_a_preset_for_which_the_rows_are_too_few_is_warned_of():
    facts = DataFacts(num_train_rows=1000)
    [warning] = resolve(parse(run={"epochs": 1}), facts=facts).warnings
    assert warning.name == "preset_unused"
    assert warning.message.startswith(
        "preset: large_batch chose batch.global_size 256 for 1 epoch of 1,000 training rows"
    )
    assert warning.message.endswith("better without the preset")
    assert resolve(parse(batch={"global_size": 64}, run={"epochs": 1}), facts=facts).warnings == []


def test_each_value_filled_by_a_preset_has_a_reason_and_stated_ones_none():
    told = tell(10**6, table_optimizer={"learning_rate": 0.5})
    assert told[RATE] == f"preset large_batch: {PRESET.values[RATE].reason}"
    assert "table_optimizer.learning_rate" not in told


def test_a_stated_value_that_equals_the_presets_is_not_told_as_filled():
    told = tell(10**6, **state(VALUES | {SCHEDULE: "auto"}))
    assert {*told} & {*PRESET.values} == {SCHEDULE}
    assert "preset" not in told[SCHEDULE]
    assert tell(10**6)[SCHEDULE].startswith("preset large_batch: ")


def test_a_document_that_was_written_and_read_again_tells_the_same_reasons():
    asked = parse(dense_optimizer={"name": "adam"})
    again = parse_job(json.loads(asked.model_dump_json()))
    assert again == asked
    facts = DataFacts(num_train_rows=10**6)
    waiting = ResolvedJob.model_validate_json(resolve(again).model_dump_json())
    decided = resolve_with_rows(waiting, facts)
    assert decided.decisions == resolve(asked, facts=facts).decisions
    assert resolve(decided.job).decisions == [decision for decision in decided.decisions if decision.field in VALUES]


def test_the_preset_chooses_the_architecture_of_its_rate_and_warns_where_another_is_stated():
    facts = DataFacts(num_train_rows=300_000)
    chosen = resolve(parse(), facts=facts)
    assert (chosen.job.model.architecture, chosen.warnings) == ("dlrm", [])
    [warning] = resolve(parse(model={"architecture": "dcn_v2"}), facts=facts).warnings
    assert warning.name == "preset_rate"
    assert "was chosen with dlrm; with dcn_v2" in warning.message
    own_rate = {"model": {"architecture": "dcn_v2"}, "dense_optimizer": {"learning_rate": 0.0015}}
    assert resolve(parse(**own_rate), facts=facts).warnings == []


def test_a_preset_that_fills_nothing_is_told_so_also_after_the_run_began():
    stated = VALUES | {SCHEDULE: []}
    facts = DataFacts(num_train_rows=10**6)
    [warning] = resolve(parse(**state(stated | {"batch.global_size": 512})), facts=facts).warnings
    assert warning.name == "preset_unused"
    assert "large_batch fills nothing" in warning.message
    # The batch alone is enough, also where it is decided already.
    open_batch = parse(**state(stated))
    decided = resolve(open_batch, facts=facts)
    for job in (decided.job, keep_decisions(open_batch, decided.job)):
        assert resolve(job, facts=facts).warnings == decided.warnings == []


def test_a_stored_document_without_a_record_of_its_preset_is_told_nothing_false():
    facts = DataFacts(num_train_rows=60_000_000)
    for record in ({}, {"filled_by_preset": None}):
        stored = decide(60_000_000).model_dump(mode="json", exclude={"filled_by_preset"}) | record
        job = JobConfig.model_validate(stored | {"batch": {"global_size": 524_288, "schedule": []}})
        assert job.filled_by_preset is None
        assert resolve(job, facts=facts).warnings == []
        assert list_shortages(job, RowCounts(60_000_000)) == []
    # Nor is one whose batch was not decided yet.
    waiting = JobSpec.model_validate(parse().model_dump(mode="json", exclude={"filled_by_preset"}))
    resolved = resolve(waiting, facts=facts)
    assert (resolved.job.filled_by_preset, resolved.warnings) == (None, [])
    assert list_shortages(resolved.job, RowCounts(60_000_000)) == []


def test_a_stored_document_sent_again_keeps_fields_with_the_presets_value():
    stored = decide(10**6).model_dump(mode="json")
    assert parse_job(stored).filled_by_preset == [*VALUES]
    stored["dense_optimizer"]["learning_rate"] = 0.5
    stored["table_optimizer"]["name"] = "adagrad"
    record = [field for field in VALUES if field != RATE and not field.startswith("table_optimizer")]
    assert parse_job(stored).filled_by_preset == record


def test_a_batch_in_a_sent_document_is_stated_whatever_was_filled():
    stored = decide(60_000_000).model_dump(mode="json")
    assert "batch.global_size" in stored["filled_by_preset"]
    stored["batch"]["global_size"] = 524_288
    job = resolve(parse_job(stored), facts=DataFacts(num_train_rows=60_000_000)).job
    assert [warning.name for warning in list_shortages(job, RowCounts(60_000_000))] == ["few_steps"]


def test_only_fields_of_the_preset_count_as_filled_each_once():
    sent = ["run.epochs", RATE, RATE, "batch.global_size", "no.such"]
    stated = state({field: entry.value for field, entry in PRESET.values.items()})
    assert parse(filled_by_preset=sent, **stated).filled_by_preset == [RATE]
    assert parse(filled_by_preset=sent).filled_by_preset == [*PRESET.values]
    assert parse_job({**DATA, "filled_by_preset": sent}).filled_by_preset is None


@pytest.mark.parametrize("sent", [RATE, [5], [["batch"]], {}, False])
def test_a_record_that_is_no_list_of_names_is_an_error_that_names_it(sent: Any):
    with pytest.raises(ConfigError) as raised:
        parse(filled_by_preset=sent)
    assert all(error.field.startswith("filled_by_preset") for error in raised.value.errors)


def test_an_unknown_preset_is_an_error_that_names_those_there_are():
    with pytest.raises(ConfigError) as raised:
        parse(preset="huge_batch")
    [fault] = raised.value.errors
    assert fault.field == "preset"
    assert "large_batch" in str(fault)


def test_too_few_steps_for_the_batch_are_told_with_a_batch_that_has_enough():
    job = decide(131_000_000, batch={"global_size": 524_288})
    assert list_shortages(job, RowCounts(524_288 * PRESET.min_steps)) == []
    [few] = list_shortages(job, RowCounts(60_000_000))
    assert few.name == "few_steps"
    assert "only 115 steps of 524,288" in few.message
    assert "60,000,000 training rows in 1 epoch" in few.message
    assert few.message.endswith("or set at most 131,072")
    more = decide(60_000_000, batch={"global_size": 524_288}, run={"epochs": 3.5})
    assert list_shortages(more, RowCounts(60_000_000)) == []


def test_too_few_rows_for_any_large_batch_get_no_smaller_one_advised():
    assert list_shortages(decide(100_000), RowCounts(100_000)) == []


def test_the_page_on_large_batches_has_the_numbers_of_the_preset():
    section = PAGE.read_text().partition("## In short")[2].partition("\n## ")[0]
    numbers = [PRESET.max_batch, PRESET.min_steps, *(entry.value for entry in PRESET.values.values())]
    for number in numbers:
        assert (number if isinstance(number, str) else f"{number:,}") in section.replace(
            "row-wise Adagrad", "rowwise_adagrad"
        ).lower()


@pytest.mark.parametrize("batch", [{"schedule": []}, {"schedule": [], "growth": None}])
def test_a_batch_of_one_size_needs_more_steps_than_one_that_grows(batch: dict[str, Any]):
    assert PRESET.min_steps < 251 < PRESET.min_constant_steps
    assert decide(131_990_000).batch.global_size == 524_288
    assert decide(131_990_000, batch=batch).batch.global_size == 131_072
    job = decide(131_990_000, batch={**batch, "global_size": 524_288})
    [few] = list_shortages(job, RowCounts(131_990_000))
    assert f"asks for at least {PRESET.min_constant_steps}" in few.message


@pytest.mark.parametrize("growth", [None, False])
def test_growth_that_is_turned_off_leaves_the_schedule_to_the_preset(growth: Any):
    assert parse(batch={"growth": growth}).batch.schedule == "auto"
    assert parse(batch={"growth": {"start_size": 64}, "global_size": 1024}).batch.schedule == []
