"""Fields of a job document that say auto: decided by the rows, unless the document states them."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from dlrm.config import (
    ConfigError,
    DataFacts,
    JobConfig,
    ModelConfig,
    compute_peak_rate,
    keep_decisions,
    parse_job,
    resolve,
    resolve_with_rows,
)

DATA: dict[str, Any] = {"data": {"train": ["day.tsv"]}}
EVIDENCE = Path(__file__).parents[3] / "benchmarks/evidence"


def decide(num_rows: int, source: ModelConfig | None = None, **sections: Any) -> JobConfig:
    return resolve(parse_job({**DATA, **sections}), facts=DataFacts(num_train_rows=num_rows, source=source)).job


def test_what_the_document_states_stays_as_it_is():
    stated = {
        "model": {"embedding_dim": 8, "bottom_mlp": [20, 8]},
        "batch": {"global_size": 64},
        "dense_optimizer": {"learning_rate": 0.3},
        "table_optimizer": {"learning_rate": 0.4},
        "run": {"epochs": 7, "validation_fraction": 0.25, "patience": 2},
    }
    job = decide(1000, **stated).model_dump()
    for section, fields in stated.items():
        assert {name: job[section][name] for name in fields} == fields


@pytest.mark.parametrize("num_rows", [1, 100, 30_000, 300_000, 5_000_000, 4_000_000_000])
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 7])
def test_a_batch_leaves_enough_steps_and_can_be_divided_by_the_ranks(num_rows: int, num_ranks: int):
    size = decide(num_rows, resources={"workers_per_node": num_ranks}).batch.global_size
    assert size % num_ranks == 0
    assert 256 <= size <= 16_384 + num_ranks
    assert size < 256 + num_ranks or num_rows / size >= 255


def test_a_batch_has_room_for_the_chunk_and_the_groups_that_are_set():
    assert decide(1000, batch={"chunk_size": 4000}).batch.global_size == 8000
    assert decide(1000, moments={"estimator": "groups", "num_groups": 1024}).batch.global_size == 1024


def test_the_two_widths_that_must_agree_do():
    assert decide(1000, model={"embedding_dim": 24}).model.bottom_mlp[-1] == 24
    assert decide(1000, model={"bottom_mlp": [32, 12]}).model.embedding_dim == 12
    job = decide(1000)
    assert job.model.bottom_mlp[-1] == job.model.embedding_dim


def test_a_run_that_starts_from_a_model_has_its_dimensions():
    source = ModelConfig(embedding_dim=40, bottom_mlp=[9, 40])
    model = decide(1000, source).model
    assert (model.embedding_dim, model.bottom_mlp) == (40, [9, 40])


def test_cross_layers_that_are_set_need_the_architecture_that_has_them():
    assert decide(4_000_000_000, model={"cross_layers": 2}).model.architecture == "dcn_v2"
    assert decide(1000, model={"architecture": "dlrm"}).model.cross_layers is None
    assert decide(1000, model={"mask_ratio": 1.0}).model.architecture == "masknet"


def test_rows_are_held_out_only_where_the_length_of_the_run_is_open():
    free, fixed = decide(20_000).run, decide(20_000, run={"epochs": 2}).run
    assert (free.validation_fraction, fixed.validation_fraction) == (0.1, 0.0)
    assert free.patience is not None
    assert fixed.patience is None


def test_a_field_that_is_decided_to_be_left_out_is_described_as_none():
    job = parse_job({**DATA, "run": {"epochs": 2}})
    lines = [decision.describe() for decision in resolve(job, facts=DataFacts(num_train_rows=20_000)).decisions]
    assert "run.patience = none: run.epochs is set" in lines


def test_validation_rows_are_enough_and_no_more():
    for num_rows in (10_000, 1_000_000, 100_000_000):
        fraction = decide(num_rows).run.validation_fraction
        assert fraction * num_rows == pytest.approx(min(0.1 * num_rows, 50_000), rel=0.05)
        assert 1 / fraction == pytest.approx(round(1 / fraction))


def test_more_rows_never_mean_smaller_batches_or_dimensions_or_more_epochs():
    jobs = [decide(num_rows) for num_rows in (1000, 50_000, 1_000_000, 20_000_000, 4_000_000_000)]
    assert [job.batch.global_size for job in jobs] == sorted(job.batch.global_size for job in jobs)
    assert [job.model.embedding_dim for job in jobs] == sorted(job.model.embedding_dim for job in jobs)
    assert [job.run.epochs for job in jobs] == sorted((job.run.epochs for job in jobs), reverse=True)


def test_a_job_is_open_until_its_rows_are_known():
    document = parse_job(DATA)
    open_job = resolve(document, ["/data"], "/cache")
    assert (open_job.asked, open_job.decisions) == (document, [])
    assert [number.name for number in open_job.derived] == ["world_size"]
    decided = resolve_with_rows(open_job, DataFacts(num_train_rows=30_000))
    assert decided.asked is None
    assert (decided.data_roots, decided.data_cache) == (["/data"], "/cache")
    assert {decision.field: decision.value for decision in decided.decisions}["batch.global_size"] == 256
    assert all(decision.reason for decision in decided.decisions)


def test_a_document_without_open_fields_is_never_open():
    job = decide(30_000)
    resolved = resolve(parse_job(job.model_dump(mode="json")))
    assert (resolved.asked, resolved.decisions, resolved.job) == (None, [], job)


def test_a_changed_document_keeps_what_the_run_has_decided():
    earlier = decide(30_000)
    changed = keep_decisions(parse_job({**DATA, "resources": {"workers_per_node": 4}}), earlier)
    assert resolve(changed).job == earlier.model_copy(update={"resources": changed.resources})
    stated = keep_decisions(parse_job({**DATA, "batch": {"global_size": 512}}), earlier)
    assert stated.batch.global_size == 512


def test_cross_layers_are_those_of_the_model_that_the_run_starts_from():
    source = ModelConfig(architecture="dcn_v2", cross_layers=2, cross_rank=64, embedding_dim=8, bottom_mlp=[8])
    job = decide(1000, source)
    assert (job.model.architecture, job.model.cross_layers, job.model.cross_rank) == ("dcn_v2", 2, 64)
    kept = keep_decisions(parse_job(DATA), job).model
    assert (kept.cross_layers, kept.cross_rank) == (2, 64)
    stacked = ModelConfig(architecture="wukong", wukong_layers=5, embedding_dim=8, bottom_mlp=[8])
    assert decide(1000, stacked).model == stacked.model_copy(update={"table_dims": {"*": 8}})


def test_a_job_with_a_warm_start_is_open_until_its_model_is_known():
    model = {"architecture": "dlrm", "embedding_dim": 8}
    others = {"batch": {"global_size": 64}, "dense_optimizer": {"learning_rate": 1.0}}
    run = {"epochs": 1, "warm_start": {"from": "/old"}}
    resolved = resolve(parse_job({**DATA, **others, "model": model, "run": run}))
    assert resolved.asked is not None
    source = ModelConfig(architecture="dlrm", embedding_dim=8, bottom_mlp=[5, 8])
    assert resolve_with_rows(resolved, DataFacts(num_train_rows=10, source=source)).job.model.bottom_mlp == [5, 8]


def test_the_reason_of_a_batch_is_that_of_the_batch():
    def find_reason(**sections: Any) -> str:
        facts = DataFacts(num_train_rows=100_000)
        resolved = resolve(parse_job({**DATA, **sections}), facts=facts)
        return next(item.reason for item in resolved.decisions if item.field == "batch.global_size")

    assert find_reason() == "for 100,000 training rows"
    raised = find_reason(batch={"chunk_size": 8192}, resources={"workers_per_node": 2})
    assert raised.startswith("256 for 100,000 training rows, raised for 2 ranks")


def test_the_rate_is_for_the_batch_that_the_schedule_names():
    def find_peak(schedule: dict[str, Any]) -> float:
        return compute_peak_rate(decide(10_000, dense_optimizer={"schedule": schedule}).dense_optimizer, 2048)

    noise = {"base_batch": 256, "scaling": "noise", "noise_scale": 1000}
    for schedule in ({}, {"base_batch": 256}, {"base_batch": 256, "scaling": "linear"}, {"scaling": "none"}, noise):
        assert find_peak(schedule) == pytest.approx(0.0014)


@pytest.mark.parametrize("chunk_size", [0, -5, 2**24 + 1])
def test_a_chunk_that_no_batch_has_room_for_is_an_error_of_its_field(chunk_size: int):
    with pytest.raises(ConfigError, match=r"batch\.chunk_size"):
        parse_job({**DATA, "batch": {"chunk_size": chunk_size}})


def test_a_last_width_that_is_no_embedding_dimension_is_an_error_of_its_field():
    with pytest.raises(ConfigError, match=r"model\.bottom_mlp: ends in 10"):
        parse_job({**DATA, "model": {"bottom_mlp": [64, 10]}})


def test_a_changed_document_that_does_not_fit_the_decisions_is_an_error_of_its_field():
    with pytest.raises(ConfigError, match=r"batch\.global_size: 256 is not divisible by 3"):
        keep_decisions(parse_job({**DATA, "resources": {"workers_per_node": 3}}), decide(30_000))


def test_a_short_run_of_open_length_is_blended_and_no_other_is():
    assert decide(1000).run.blend == decide(300_000).run.blend == "logistic"
    assert decide(300_001).run.blend == "none"
    for stated in ({"epochs": 2}, {"epochs": 2, "validation_fraction": 0.1}, {"validation_fraction": 0.0}):
        assert decide(1000, run=stated).run.blend == "none"
    assert decide(1000, run={"target_auc": 0.8}).run.blend == "none"
    assert decide(1000, run={"blend": "none"}).run.blend == "none"
    assert decide(1000, run={"epochs": 2, "validation_fraction": 0.1, "blend": "logistic"}).run.blend == "logistic"


def find_growing_size(first: int, last: int, until: float) -> float:
    """Find the size that ends at a share of the samples: from `first`, which ends at 0.2, it grows by the same factor
    over equal shares, so that `last` would end at 0.6.
    """
    return first * (last / first) ** ((until - 0.2) / 0.4)


@pytest.mark.parametrize(
    ("num_rows", "batch", "num_ranks", "first", "last", "num_sizes"),
    [
        # An eighth; four sizes for each doubling.
        (30_000, {"global_size": 4096}, 1, 512, 4096, 12),
        # 1,000 / 8 = 125, rounded to a multiple of 8, which all ranks that divide 1,000 and 16 divide.
        (30_000, {"global_size": 1000}, 2, 128, 1000, 12),
        # 4,000,000 rows are decided to have 8,192.
        (4_000_000, {}, 1, 1024, 8192, 12),
        # At most 16,384: five doublings.
        (4_000_000, {"global_size": 524_288}, 8, 16_384, 524_288, 20),
    ],
)
def test_an_open_schedule_grows_in_small_steps_from_a_fifth_to_60_percent(
    num_rows: int, batch: dict[str, Any], num_ranks: int, first: int, last: int, num_sizes: int
):
    changes = {"batch": {"schedule": "auto", **batch}, "resources": {"workers_per_node": num_ranks}, "moments": None}
    resolved = resolve(parse_job({**DATA, **changes}), facts=DataFacts(num_train_rows=num_rows))
    schedule = resolved.job.batch.schedule
    assert (schedule[0].until_fraction, schedule[0].global_size, len(schedule)) == (0.2, first, num_sizes)
    for number, stage in enumerate(schedule):
        assert stage.until_fraction == pytest.approx(0.2 + 0.4 * number / num_sizes, abs=1e-4)
        size = find_growing_size(first, last, stage.until_fraction)
        assert stage.global_size == pytest.approx(size, rel=0.04)
        assert stage.global_size % num_ranks == 0
    (told,) = [decision for decision in resolved.decisions if decision.field == "batch.schedule"]
    end = f"{schedule[-1].global_size:,} until {schedule[-1].until_fraction:g} of the samples"
    assert told.value == f"{first:,} until 0.2, {num_sizes - 2} more sizes, {end}"
    assert keep_decisions(parse_job({**DATA, **changes}), resolved.job).batch.schedule == schedule


def test_an_open_schedule_of_the_largest_batch_is_the_one_that_was_measured():
    document = tomllib.loads((EVIDENCE / "rare_clicks/long_preset/sweep.toml").read_text())
    measured = document["methods"]["from-16384"]["batch"]["schedule"]
    schedule = decide(4_000_000, batch={"schedule": "auto", "global_size": 524_288}).batch.schedule
    assert [stage.model_dump() for stage in schedule] == measured


@pytest.mark.parametrize(
    ("batch", "num_ranks", "sizes"),
    [
        # From 3, and 4 ranks: 3, 3 and 4 are 4; 5 to 8 are 8; 10 and 12 are 12; 14 is 16; 17 and 20 are 20.
        ({"global_size": 24}, 4, {4: 0.2667, 8: 0.4, 12: 0.4667, 16: 0.5, 20: 0.5667}),
        # A chunk may be larger than the share of a small size.
        ({"global_size": 4096, "chunk_size": 600}, 2, {512: 0.2, 608: 0.2333}),
    ],
)
def test_sizes_of_an_open_schedule_raised_to_one_size_count_once(
    batch: dict[str, Any], num_ranks: int, sizes: dict[int, float]
):
    resources = {"workers_per_node": num_ranks}
    schedule = decide(30_000, batch={"schedule": "auto", **batch}, resources=resources, moments=None).batch.schedule
    found = {stage.global_size: stage.until_fraction for stage in schedule}
    assert {size: found[size] for size in sizes} == sizes
    assert min(found) == min(sizes)


@pytest.mark.parametrize(
    ("last", "rank_counts"),
    [
        (256, (1, 2, 4, 8)),
        (1000, (1, 2, 4, 8)),
        (4096, (1, 2, 4, 8, 16, 32)),
        (3000, (1, 2, 3, 4, 6, 12)),
        (49_152, (1, 2, 3, 4, 6, 8, 12, 16, 24)),
        (524_288, (1, 2, 4, 8, 16, 64, 1024)),
    ],
)
def test_sizes_of_an_open_schedule_are_the_same_whatever_the_number_of_ranks(last: int, rank_counts: tuple[int, ...]):
    schedules = [
        decide(10**8, batch={"schedule": "auto", "global_size": last}, resources={"workers_per_node": num_ranks})
        for num_ranks in rank_counts
    ]
    assert len(schedules[0].batch.schedule) > 6
    assert all(job.batch.schedule == schedules[0].batch.schedule for job in schedules)


def test_a_batch_that_the_ranks_cannot_begin_smaller_does_not_grow():
    changes = {"batch": {"schedule": "auto", "global_size": 8}, "resources": {"workers_per_node": 8}, "moments": None}
    resolved = resolve(parse_job({**DATA, **changes}), facts=DataFacts(num_train_rows=30_000))
    assert resolved.job.batch.schedule == []
    (told,) = [decision for decision in resolved.decisions if decision.field == "batch.schedule"]
    assert (told.value, "too small" in told.reason) == (None, True)


@pytest.mark.parametrize("schedule", ["early", ["auto"], {}, None])
def test_a_schedule_that_is_neither_stages_nor_auto_is_refused_by_its_field(schedule: Any):
    with pytest.raises(ConfigError) as raised:
        parse_job({**DATA, "batch": {"global_size": 64, "schedule": schedule}})
    assert [error.field.split(".")[:2] for error in raised.value.errors] == [["batch", "schedule"]]
    assert not any("(" in error.field for error in raised.value.errors)


@pytest.mark.parametrize(("least", "most"), [(1, 3), (2, 4), (3, 4)])
def test_an_open_batch_divides_by_the_ranks_at_both_ends_of_a_range(least: int, most: int):
    resources = {"nodes": {"min": least, "max": most}, "workers_per_node": 2}
    batch = decide(100_000, batch={"schedule": "auto"}, resources=resources).batch
    assert len(batch.schedule) > 3
    for _, size in batch.list_sizes():
        assert (size % (2 * least), size % (2 * most)) == (0, 0)


def test_a_range_of_machines_whose_ranks_divide_no_batch_is_refused_by_its_field():
    resources = {"nodes": {"min": 1021, "max": 1023}, "workers_per_node": 1024}
    with pytest.raises(
        ConfigError,
        match=r"resources\.nodes: no batch of up to 16,777,216 samples is divisible by both 1045504 and 1047552 ranks",
    ):
        decide(100_000, resources=resources)
