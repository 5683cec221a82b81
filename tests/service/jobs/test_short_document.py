"""The shortest document of a job: it makes the same job again, and states nothing that comes by itself."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from dlrm.config import PRESETS, ConfigError, JobSpec, parse_job
from service.job_schema import get_job_schema
from service.jobs.short_document import shorten_document
from service.schemas import ShortDocument
from tests.service.api import Api, make_document

ROOT = Path(__file__).parents[3]
FILES = [*(ROOT / "examples").glob("*.toml"), *(ROOT / "service/dashboard/static/new/starts").glob("*.toml")]
DATA: dict[str, Any] = {"format": "synthetic"}
OPTIMIZERS: list[str] = get_job_schema()["$defs"]["DenseOptimizerSpec"]["properties"]["name"]["enum"]
COLUMNS: dict[str, Any] = {
    "label": "clicked",
    "dense": [{"name": "emb", "length": 2}, {"name": "prix €", "decimal_mark": ","}],
    "categorical": [{"name": "Farbe", "multi_hot": True}, {"name": 'a "b"\\\x7f\n', "bucketize": 8}],
}
DOCUMENTS: list[dict[str, Any]] = [
    {"run": {"patience": None, "trackers": {"tensorboard": True, "mlflow": {}}}, "moments": None},
    {"averaging": {}, "table_optimizer": {"cowclip": {}}, "labels": {"a.b": "ü", "c": ""}},
    {"averaging": {"half_life_fraction": 0.2}, "variance_reduction": {}, "moments": {"every": 2}},
    {"dense_optimizer": {"groups": [{"parameters": "top.*"}, {"parameters": "*", "trust_ratio": None}]}},
    {
        "dense_optimizer": {"schedule": {"scaling": "none", "decay": "wsd"}},
        "table_optimizer": {"schedule": {"power": 2}},
    },
    {"table_optimizer": {"schedule": {"decay": "polynomial", "power": 3.0, "warmup_fraction": 0.1}}},
    {"batch": {"global_size": 64, "growth": {"start_size": 8}}, "resources": {"nodes": {"max": 2}}},
    {"batch": {"global_size": 64, "schedule": [{"until_fraction": 0.5, "global_size": 8}]}},
    {"model": {"architecture": "dcn_v2", "cross_rank": 64}, "sharding": {"topology": {"gpu_memory": "80GB"}}},
    {"data": {"train": ["a.csv"], "eval": ["b.csv"], "format": "csv", "schema": COLUMNS}},
    {"data": {"train": ["a"], "vocabulary": {"columns": {"C1": {"hash_size": 9}, "C*": {"min_count": 3}}}}},
]
PRESET_DOCUMENTS: list[dict[str, Any]] = [
    {},
    {"dense_optimizer": {"learning_rate": 0.006}},
    {"dense_optimizer": {"weight_decay": 0.1, "beta1": 0.8}},
    {"dense_optimizer": {"schedule": {"scaling": "none"}}},
    {"table_optimizer": {"initial_accumulator": 0.0, "learning_rate": 0.12}},
    {"batch": {"growth": {"start_size": 8}, "global_size": 64}},
]


def shorten(document: dict[str, Any]) -> tuple[JobSpec, ShortDocument]:
    """Return the job of a document, and the shortest document for the whole one that a service keeps of it."""
    job = parse_job(document)
    return job, shorten_document(job.model_dump(mode="json"))


def check(document: dict[str, Any]) -> None:
    """Check that the shortest document makes the same job in both forms, and another one without any of its fields."""
    job, short = shorten(document)
    assert tomllib.loads(short.toml) == short.document
    assert parse_job(short.document) == job
    for difference in short.differences:
        try:
            assert parse_job(leave_out(short.document, *difference.field.split("."))) != job
        except ConfigError:
            continue


def leave_out(document: dict[str, Any], name: str, *below: str) -> dict[str, Any]:
    inner = leave_out(document[name], *below) if below else None
    return {own: value for own, value in document.items() if own != name} | ({name: inner} if inner else {})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_documents_that_users_begin_with_keep_their_meaning(path: Path) -> None:
    check(tomllib.loads(path.read_text()))


@pytest.mark.parametrize("document", DOCUMENTS, ids="-".join)
@pytest.mark.parametrize("preset", [None, *PRESETS])
def test_nulls_empty_sections_and_lists_keep_their_meaning(document: dict[str, Any], preset: str | None) -> None:
    check({"data": DATA, "preset": preset, **document})


@pytest.mark.parametrize("document", PRESET_DOCUMENTS, ids=str)
@pytest.mark.parametrize("preset", PRESETS)
def test_what_a_user_states_beside_a_preset_stays_stated(document: dict[str, Any], preset: str) -> None:
    check({"data": DATA, "preset": preset, **document})


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("preset", [None, *PRESETS])
def test_the_settings_of_an_optimizer_are_not_stated(name: str, preset: str | None) -> None:
    document = {"data": DATA, "dense_optimizer": {"name": name}}
    check({**document, "preset": preset})
    _, short = shorten(document)
    assert short.document == (document if name != "adam" else {"data": DATA})


@given(st.sampled_from([None, *PRESETS]), st.lists(st.sampled_from([*DOCUMENTS, *PRESET_DOCUMENTS]), max_size=4))
def test_any_mix_of_settings_keeps_its_meaning(preset: str | None, parts: list[dict[str, Any]]) -> None:
    document: dict[str, Any] = {"data": DATA, "preset": preset}
    for part in parts:
        document |= {name: {**(document.get(name) or {}), **value} if value else value for name, value in part.items()}
    try:
        parse_job(document)
    except ConfigError:
        reject()
    check(document)


def list_nullable(model: dict[str, Any]) -> Iterator[str]:
    for name, field in model["properties"].items():
        if {"type": "null"} in field.get("anyOf", []) and field["default"] is not None:
            yield name


def test_every_field_that_null_sets_to_another_value_than_its_default_takes_false() -> None:
    """TOML has no null, so that a document could not be written without it."""
    schema = get_job_schema()
    found = {name for model in (schema, *schema["$defs"].values()) for name in list_nullable(model)}
    assert found == {"moments", "patience", "max_divergence"}
    document = {"moments": False, "run": {"patience": False}, "preconditioner": {"max_divergence": False}}
    job = parse_job({"data": DATA, **document})
    assert job.preconditioner is not None
    assert (job.moments, job.run.patience, job.preconditioner.max_divergence) == (None, None, None)


def test_differences_say_what_a_field_would_be_without_being_stated() -> None:
    _, short = shorten({"data": DATA, "dense_optimizer": {"name": "lamb", "eps": 1e-8}, "resources": {"memory": 2**30}})
    found = {difference.field: (difference.value, difference.default) for difference in short.differences}
    assert found == {
        "data.format": ("synthetic", "criteo_tsv"),
        "dense_optimizer.name": ("lamb", "adam"),
        "dense_optimizer.eps": (1e-8, 1e-6),
        "resources.memory": ("1GiB", "8GiB"),
    }
    assert all(difference.meaning for difference in short.differences)


def test_the_service_answers_with_json_or_toml(shared_api: Api) -> None:
    changes: dict[str, Any] = {"run": {"patience": None}, "dense_optimizer": {"name": "lamb"}}
    path = f"/v1/jobs/{shared_api.submit(**changes)['id']}/document"
    answer = shared_api.viewer.get(path).json()
    toml = shared_api.viewer.get(path, headers={"Accept": "application/toml"})
    assert toml.headers["content-type"] == "application/toml"
    assert tomllib.loads(toml.text) == answer["document"] == tomllib.loads(answer["toml"])
    assert parse_job(answer["document"]) == parse_job(make_document(**changes))
    again = shared_api.submitter.post("/v1/jobs", content=toml.content, headers={"Content-Type": "application/toml"})
    assert again.status_code == 201
    assert shared_api.anonymous.get(path).status_code == 401
