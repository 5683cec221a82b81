"""The `model` section of a job."""

import json
from typing import Any

import pytest

from dlrm.config import ConfigError, ModelConfig, parse_job, resolve
from dlrm.config.identity import list_differences, make_identity
from dlrm.config.model import NORMALIZED, SETTING_FIELDS, SETTINGS

CSV = {"train": ["clicks.csv"], "format": "csv"}


def job_with(**model: Any) -> dict[str, Any]:
    return {"data": {"train": ["clicks.tsv"]}, "model": model}


def errors_of(document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        parse_job(document)
    return {error.field: str(error) for error in caught.value.errors}


def test_cross_layers_have_mlperfs_defaults_and_other_architectures_have_none():
    crossing = parse_job(job_with(architecture="dcn_v2")).model
    assert (crossing.cross_layers, crossing.cross_rank) == (3, 512)
    half = parse_job(job_with(architecture="dcn_v2", cross_layers=None, cross_rank=64)).model
    assert (half.cross_layers, half.cross_rank) == (3, 64)
    dot = parse_job(job_with()).model
    assert (dot.cross_layers, dot.cross_rank) == (None, None)


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"architecture": "dcn_v2"},
        {"architecture": "dcn_v2", "cross_layers": 1, "cross_rank": 7, "pooling": "mean"},
        {"pooling": "mean", "cross_layers": None},
        *({"architecture": name} for name in SETTINGS),
        {"architecture": "wukong", "wukong_layers": 1, "wukong_rank": None},
    ],
)
def test_a_model_with_its_defaults_filled_in_is_the_same_one(model: dict[str, Any]):
    job = parse_job(job_with(**model))
    assert parse_job(json.loads(job.model_dump_json())) == job
    decided = resolve(job).job.model
    assert ModelConfig.model_validate(decided.model_dump()) == decided


@pytest.mark.parametrize(
    ("model", "field", "hint"),
    [
        ({"architecture": "dcn"}, "model.architecture", "'dlrm', 'dcn_v2', 'gdcn'"),
        (
            {"architecture": "dlrm", "cross_layers": 3},
            "model.cross_layers",
            'dlrm has no cross_layers (valid: leave it out, or set architecture to "dcn_v2" or "gdcn")',
        ),
        ({"architecture": "deepfm", "mask_blocks": 3}, "model.mask_blocks", 'set architecture to "masknet")'),
        ({"architecture": "wukong", "gate_width": 3}, "model.gate_width", 'set architecture to "finalmlp")'),
        ({"architecture": "masknet", "mask_ratio": 0.0}, "model.mask_ratio", "greater than 0"),
        ({"architecture": "finalmlp", "top_mlp": [1]}, "model.top_mlp", "such as [256, 1]"),
        ({"architecture": "finalmlp", "fusion_heads": 3}, "model.fusion_heads", "a divisor of 256"),
        ({"architecture": "dlrm", "cross_rank": 3}, "model.cross_rank", "dlrm has no cross_rank"),
        ({"architecture": "dcn_v2", "cross_layers": 0}, "model.cross_layers", "greater than or equal to 1"),
        ({"architecture": "dcn_v2", "cross_rank": 0.5}, "model.cross_rank", "whole number"),
        ({"architecture": "dcn_v2", "cross_rnak": 5}, "model.cross_rnak", "did you mean 'cross_rank'?"),
        ({"pooling": "max"}, "model.pooling", "'sum' or 'mean'"),
        ({"architecture": "dcn_v2", "embedding_dim": 64, "bottom_mlp": [8]}, "model.bottom_mlp", "[64]"),
    ],
)
def test_a_bad_model_names_the_field_and_what_would_be_valid(model: dict[str, Any], field: str, hint: str):
    errors = errors_of(job_with(**model))
    assert list(errors) == [field]
    assert hint in errors[field]


@pytest.mark.parametrize("architecture", SETTINGS)
def test_every_architecture_has_defaults_for_its_own_settings_alone(architecture: str):
    model = parse_job(job_with(architecture=architecture)).model
    assert {field: value for field in SETTING_FIELDS if (value := getattr(model, field)) is not None} == SETTINGS[
        architecture
    ]


@pytest.mark.parametrize("architecture", SETTINGS)
def test_kfac_is_refused_for_layer_normalization_alone(architecture: str):
    document = {**job_with(architecture=architecture), "preconditioner": {}}
    if architecture in NORMALIZED:
        errors = errors_of(document)
        assert list(errors) == ["preconditioner"]
        assert "null, or model.architecture dlrm, dcn_v2, gdcn, deepfm, finalmlp" in errors["preconditioner"]
    else:
        assert parse_job(document).preconditioner is not None


@pytest.mark.parametrize("schema", [{"dense": [{"name": "x"}]}, {"categorical": [{"name": "x"}]}])
def test_columns_of_one_kind_are_enough(schema: dict[str, Any]):
    assert parse_job({"data": {**CSV, "schema": schema}}).data.raw_schema.names == ["label", "x"]
    assert list(errors_of({"data": {**CSV, "schema": {}}})) == ["data.schema.categorical"]


def test_a_run_of_before_there_was_a_choice_goes_on_as_it_was():
    now = make_identity(parse_job(job_with()))
    before = {name: value for name, value in now.items() if name not in ("model.pooling", "model.cross_layers")}
    assert list_differences(now, before) == []
    other = make_identity(parse_job(job_with(pooling="mean")))
    assert list_differences(other, before) == ['model.pooling is "mean", but was "sum"']


BUY = {"name": "buy", "label": "bought"}


@pytest.mark.parametrize(
    ("tasks", "field"),
    [
        ([{"name": "click", "label": "clicked"}], "model.tasks.0.label"),
        ([{"name": "click", "kind": "regression"}], "model.tasks.0.kind"),
        ([{"name": "click"}, {"name": "buy"}], "model.tasks.1.label"),
        ([{"name": "click"}, {**BUY, "name": "click"}], "model.tasks.1.name"),
        ([{"name": "click"}, {**BUY, "given": "view"}], "model.tasks.1.given"),
        ([{"name": "click"}, {**BUY, "kind": "regression", "given": "click"}], "model.tasks.1.given"),
        ([{"name": "click"}, {**BUY, "kind": "regression"}], "model.tasks.1.label"),
        ([{"name": "click"}, {**BUY, "label": "basket"}], "model.tasks.1.label"),
    ],
)
def test_tasks_that_do_not_fit_are_refused_with_their_field(tasks: list[dict[str, Any]], field: str):
    assert list(errors_of(job_of_tasks(tasks))) == [field]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"run": {"label_smoothing": 0.1}}, "run.label_smoothing"),
        ({"run": {"recalibrate": "platt"}}, "run.recalibrate"),
        ({"run": {"blend": "logistic"}}, "run.blend"),
        ({"run": {"sharpness": {}}}, "run.sharpness"),
        ({"data": {"format": "synthetic"}}, "model.tasks"),
        ({"preconditioner": {}}, "preconditioner"),
    ],
)
def test_what_is_for_one_label_is_refused_beside_further_tasks(changes: dict[str, Any], field: str):
    document = job_of_tasks([{"name": "click"}, BUY], task_sharing={"loss_weighting": "uncertainty"})
    parse_job(document)
    assert list(errors_of({**document, **changes})) == [field]


def test_methods_of_sharing_have_their_own_settings():
    assert parse_job(job_of_tasks([{"name": "click"}, BUY], task_sharing={"method": "ple"})).model.task_sharing
    faults = errors_of(job_of_tasks([{"name": "click"}, BUY], task_sharing={"num_experts": 3}))
    assert list(faults) == ["model.task_sharing.num_experts"]
    assert list(errors_of(job_of_tasks([{"name": "click"}], architecture="finalmlp"))) == ["model.architecture"]
    assert list(errors_of(job_with(task_sharing={}))) == ["model.task_sharing"]


def job_of_tasks(tasks: list[dict[str, Any]], **model: Any) -> dict[str, Any]:
    schema = {"further_labels": [{"name": "bought"}], "dense": [{"name": "age"}]}
    return {"data": {**CSV, "schema": schema}, "model": {"tasks": tasks, **model}}
