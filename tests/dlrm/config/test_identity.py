"""Which settings make a run the one it is."""

from typing import Any

import pytest

from dlrm.config import JobConfig, list_differences, make_identity

SYNTHETIC: dict[str, Any] = {"data": {"format": "synthetic"}}
FILES: dict[str, Any] = {"data": {"train": ["day_1.tsv"]}}


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other", "labels": {"team": "ads"}, "priority": 3, "max_restarts": 9},
        {"deadline_seconds": 5, "deadline_from": "submission"},
        {"resources": {"workers_per_node": 4, "memory": "3GiB"}},
        {"sharding": {"plan": "row_wise"}, "batch": {"chunk_size": 512}},
        {"run": {"eval_every_fraction": 0.5, "target_auc": 0.7, "checkpoint_every_seconds": 5, "keep_checkpoints": 1}},
        {"run": {"blend": "logistic"}},
    ],
)
def test_where_and_how_often_may_change_from_one_attempt_to_the_next(change: dict[str, Any]):
    assert make_identity(JobConfig.model_validate({**SYNTHETIC, **change})) == make_identity(
        JobConfig.model_validate(SYNTHETIC)
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"batch": {"global_size": 1024}}, "batch.global_size is 1024, but was 16384"),
        (
            {"batch": {"schedule": [{"until_fraction": 0.5, "global_size": 512}]}},
            'batch.schedule is [{"until_fraction": 0.5, "global_size": 512}], but was []',
        ),
        ({"batch": {"growth": {"start_size": 512}}}, 'batch.growth is {"start_size": 512, "'),
        ({"run": {"seed": 1}}, "run.seed is 1, but was 0"),
        ({"run": {"label_smoothing": 0.1}}, "run.label_smoothing is 0.1, but was 0.0"),
        ({"run": {"epochs": 2}}, "run.epochs is 2.0, but was 1.0"),
        ({"precision": "bf16"}, 'precision is "bf16", but was "fp32"'),
        ({"dense_optimizer": {"schedule": {"power": 3}}}, "dense_optimizer.schedule.power is 3"),
        ({"sharding": {"exchange_dtype": "fp16"}}, 'sharding.exchange_dtype is "fp16", but was "fp32"'),
        ({"data": {"format": "synthetic", "synthetic": {"seed": 5}}}, "data.synthetic.seed is 5, but was 0"),
        ({"run": {"warm_start": {"from": "runs/a"}}}, "run.warm_start is {"),
    ],
)
def test_what_changes_the_weights_is_named(change: dict[str, Any], field: str):
    found = list_differences(
        make_identity(JobConfig.model_validate({**SYNTHETIC, **change})),
        make_identity(JobConfig.model_validate(SYNTHETIC)),
    )
    assert any(difference.startswith(field) for difference in found)


@pytest.mark.parametrize(
    ("now", "before", "difference"),
    [
        (
            {"table_optimizer": {"cowclip": {"r": 1.0}}},
            {"table_optimizer": {"cowclip": {"r": 0.2}}},
            "table_optimizer.cowclip.r is 1.0, but was 0.2",
        ),
        (
            {"averaging": {"half_life_fraction": 0.1}},
            {"averaging": {"half_life_fraction": 0.2}},
            "averaging.half_life_fraction is 0.1, but was 0.2",
        ),
    ],
)
def test_differing_settings_of_a_section_off_by_default_are_named(
    now: dict[str, Any], before: dict[str, Any], difference: str
):
    identities = [make_identity(JobConfig.model_validate({**SYNTHETIC, **change})) for change in (now, before)]
    assert list_differences(*identities) == [difference]


def test_files_may_lie_elsewhere_since_their_checksum_stands_for_them():
    moved = {"data": {"train": ["/elsewhere/day_1.tsv"], "eval": ["x.tsv"]}}
    assert make_identity(JobConfig.model_validate(moved)) == make_identity(JobConfig.model_validate(FILES))
    assert make_identity(
        JobConfig.model_validate({"data": {**FILES["data"], "vocabulary": {"min_count": 5}}})
    ) != make_identity(JobConfig.model_validate(FILES))


def test_a_field_that_an_earlier_version_did_not_have_had_its_default():
    now = make_identity(JobConfig.model_validate(SYNTHETIC))
    before = {field: value for field, value in now.items() if field != "precision"}
    assert list_differences(now, before) == []
    changed = make_identity(JobConfig.model_validate({**SYNTHETIC, "precision": "bf16"}))
    assert list_differences(changed, before) == ['precision is "bf16", but was "fp32"']


def test_moments_count_where_variance_reduction_needs_them_alone():
    without, every, auto = (
        make_identity(JobConfig.model_validate({"data": {"format": "synthetic"}, **changes}))
        for changes in (
            {"moments": {"estimator": "groups"}},
            {"variance_reduction": {}, "moments": {"every": 1}},
            {"variance_reduction": {}},
        )
    )
    assert not list_differences(
        without, make_identity(JobConfig.model_validate({"data": {"format": "synthetic"}, "moments": None}))
    )
    assert not list_differences(every, auto)
    assert not any(line.startswith("moments") for line in list_differences(without, auto))
    (line,) = list_differences(without, auto)
    assert line.startswith('variance_reduction is null, but was {"gamma": 0.1')


def test_fields_of_columns_that_an_earlier_version_did_not_have_are_no_difference():
    data = {"train": ["a.csv"], "format": "csv", "schema": {"categorical": [{"name": "c"}]}}
    now = make_identity(JobConfig.model_validate({"data": data}))
    before = {field: value for field, value in now.items() if field != "data.schema.positive"}
    before["data.schema.categorical"] = [{"name": "c", "type": "string", "multi_hot": False, "separator": "|"}]
    assert list_differences(now, before) == []


def test_a_checkpoint_of_before_batches_grew_is_of_one_size():
    before = make_identity(JobConfig.model_validate(SYNTHETIC))
    del before["batch.growth"], before["batch.schedule"]
    assert list_differences(make_identity(JobConfig.model_validate(SYNTHETIC)), before) == []
    growing = make_identity(JobConfig.model_validate({**SYNTHETIC, "batch": {"growth": {"start_size": 512}}}))
    (difference,) = list_differences(growing, before)
    assert difference.startswith("batch.growth is {")
    assert difference.endswith(", but was null")


def test_moments_belong_to_a_run_whose_batch_grows_by_its_noise_scale():
    grows = {"batch": {"growth": {"start_size": 512}}}
    one, other = (
        make_identity(JobConfig.model_validate({**SYNTHETIC, **grows, "moments": {"every": every}})) for every in (1, 2)
    )
    assert list_differences(one, other) == ["moments.every is 1, but was 2"]


def test_settings_of_variance_reduction_are_compared_where_both_runs_have_it():
    one, other = (
        make_identity(JobConfig.model_validate({**SYNTHETIC, "variance_reduction": {"gamma": gamma}}))
        for gamma in (0.1, 0.2)
    )
    assert list_differences(one, other) == ["variance_reduction.gamma is 0.1, but was 0.2"]
    # An earlier version may have had fewer settings.
    older = {field: value for field, value in other.items() if field not in {"moments.fraction", "moments.num_groups"}}
    assert list_differences(one, older) == list_differences(one, other)
