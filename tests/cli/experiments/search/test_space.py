"""The space that a tuning searches."""

from typing import Any

import pytest

from cli.experiments.search.space import Choice, LogUniform, draw_settings, list_parameters
from cli.experiments.trials.fields import set_fields
from dlrm.config import JobConfig, parse_job, resolve

ALL = [
    "dense_optimizer.learning_rate",
    "table_optimizer.learning_rate",
    "batch.global_size",
    "model.embedding_dim",
    "model.architecture",
    "model.top_mlp",
]


def make_document(**sections: Any) -> dict[str, Any]:
    return {"data": {"format": "synthetic", "synthetic": {"num_rows": 1000, "num_ids": 50}}, **sections}


def decide(document: dict[str, Any]) -> JobConfig:
    return resolve(parse_job(document)).job


def list_fields(document: dict[str, Any], *, is_all: bool = False) -> list[str]:
    return [parameter.field for parameter in list_parameters(document, decide(document), is_all=is_all)]


@pytest.mark.parametrize("batch", [{}, {"chunk_size": 4096}])
def test_a_batch_chosen_by_a_preset_is_a_setting_of_every_trial(
    batch: dict[str, Any],
) -> None:
    document = make_document(preset="large_batch", batch=batch)
    parameters = list_parameters(document, decide(document), is_all=False)
    assert "batch.global_size" in draw_settings(parameters, document, decide(document), 0, 1)


def test_a_document_that_states_nothing_has_every_field_tuned() -> None:
    assert list_fields(make_document()) == ALL


@pytest.mark.parametrize(
    ("stated", "field"),
    [
        ({"dense_optimizer": {"learning_rate": 0.01}}, "dense_optimizer.learning_rate"),
        ({"batch": {"global_size": 512}}, "batch.global_size"),
        ({"model": {"embedding_dim": 8}}, "model.embedding_dim"),
        ({"model": {"bottom_mlp": [16, 8]}}, "model.embedding_dim"),
        ({"model": {"architecture": "dlrm"}}, "model.architecture"),
        ({"model": {"top_mlp": [8, 1]}}, "model.top_mlp"),
    ],
)
def test_a_field_that_the_document_states_is_tuned_only_with_all(stated: dict[str, Any], field: str) -> None:
    document = make_document(**stated)
    assert list_fields(document) == [name for name in ALL if name != field]
    assert list_fields(document, is_all=True) == ALL


def test_auto_is_not_stated() -> None:
    assert list_fields(make_document(batch={"global_size": "auto"}, model={"embedding_dim": "auto"})) == ALL


def test_values_that_the_document_cannot_take_are_left_out() -> None:
    document = make_document(batch={"chunk_size": 4096}, resources={"workers_per_node": 4}, model={"cross_layers": 2})
    job = decide(document)
    values = {
        parameter.field: list(parameter.values)
        for parameter in list_parameters(document, job, is_all=False)
        if isinstance(parameter, Choice)
    }
    assert job.batch.global_size == 16_384
    assert values["batch.global_size"] == [16_384, 32_768]
    assert values["model.architecture"] == ["dcn_v2", "gdcn"]


def test_the_model_of_a_warm_start_stays_as_it_is() -> None:
    fields = list_fields(make_document(run={"warm_start": {"from": "/runs/yesterday"}}))
    assert fields == ALL[:3]


def test_rates_lie_within_their_factors_and_cover_both_sides_of_the_untuned_one() -> None:
    document = make_document()
    job = decide(document)
    parameters = list_parameters(document, job, is_all=False)
    assert isinstance(parameters[0], LogUniform)
    drawn = [draw_settings(parameters, document, job, 0, trial)["dense_optimizer.learning_rate"] for trial in range(99)]
    factors = sorted(rate / job.dense_optimizer.learning_rate for rate in drawn)
    # Rounded to three digits, so that a factor may exceed its bound by half a digit.
    assert 0.3 * 0.995 <= factors[0] < 0.45
    assert 2.0 < factors[-1] <= 3.0 * 1.005
    assert 0.6 < factors[49] < 1.5


def test_every_draw_is_a_valid_job_and_depends_on_seed_and_trial_alone() -> None:
    document = make_document(model={"bottom_mlp": [16, 8]})
    job = decide(document)
    parameters = list_parameters(document, job, is_all=True)
    draws = [draw_settings(parameters, document, job, 1, trial) for trial in range(30)]
    for draw in draws:
        tuned = parse_job(set_fields(document, draw))
        assert tuned.model.bottom_mlp == [16, tuned.model.embedding_dim]
    assert draws == [draw_settings(parameters, document, job, 1, trial) for trial in range(30)]
    assert draws[0] != draw_settings(parameters, document, job, 2, 0)
