import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.local.documents import read_job
from cli.local.errors import BadInputError
from cli.local.set_option import apply_settings, parse_settings
from dlrm.config import parse_job

DOCUMENT: dict[str, Any] = {
    "data": {"train": ["a.tsv", "b.tsv"]},
    "batch": {"global_size": 64},
    "moments": False,
    "sharding": {"tables": [{"pattern": "C*", "type": "row_wise"}]},
}


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("batch.global_size=4096", "batch.global_size", 4096),
        ("batch.global_size = 524_288", "batch.global_size", 524_288),
        ('dense_optimizer.name="lamb"', "dense_optimizer.name", "lamb"),
        ("dense_optimizer.name=lamb", "dense_optimizer.name", "lamb"),
        ("dense_optimizer.learning_rate=1e-3", "dense_optimizer.learning_rate", 1e-3),
        ("resources.memory=8GiB", "resources.memory", "8GiB"),
        ("run.warm_start.from=s3://b/k=1", "run.warm_start.from", "s3://b/k=1"),
        ("moments.estimator=groups", "moments.estimator", "groups"),
        ("variance_reduction=false", "variance_reduction", False),
        ('data.train=["c.tsv"]', "data.train", ["c.tsv"]),
        ("data.train.1=c.tsv", "data.train.1", "c.tsv"),
        ("sharding.tables.0.ranks=[0, 1]", "sharding.tables.0.ranks", [0, 1]),
        ("run={ epochs = 2 }", "run.epochs", 2),
        ("name=2026-01-31", "name", "2026-01-31"),
        ("name=", "name", ""),
        ("name=a\nb = 1", "name", "a\nb = 1"),
    ],
)
def test_a_value_is_toml_and_anything_that_is_not_is_text(text: str, path: str, value: object) -> None:
    node: Any = apply_settings(DOCUMENT, parse_settings([text]))
    for part in path.split("."):
        node = node[int(part) if part.isdecimal() else part]
    assert (node, type(node)) == (value, type(value))


def test_a_quoted_part_of_a_key_may_hold_any_character() -> None:
    changed = apply_settings(DOCUMENT, parse_settings(['data.vocabulary.columns."user.*".hash_size=100']))
    assert changed["data"]["vocabulary"] == {"columns": {"user.*": {"hash_size": 100}}}


def test_the_last_of_two_settings_of_a_field_wins_and_the_document_itself_stays() -> None:
    before = json.dumps(DOCUMENT)
    changed = apply_settings(DOCUMENT, parse_settings(["batch.global_size=1", "batch.global_size=2"]))
    assert changed["batch"] == {"global_size": 2}
    assert json.dumps(DOCUMENT) == before


@pytest.mark.parametrize("settings", [["preset=large_batch"], []], ids=["set too", "of the document"])
def test_a_rate_in_the_place_of_that_of_a_preset_is_for_the_same_batch(settings: list[str]) -> None:
    document = DOCUMENT | ({} if settings else {"preset": "large_batch"})
    ours = parse_job(apply_settings(document, parse_settings(settings)))
    job = parse_job(apply_settings(document, parse_settings(["dense_optimizer.learning_rate=0.5", *settings])))
    assert (job.dense_optimizer.learning_rate, job.dense_optimizer.schedule) == (0.5, ours.dense_optimizer.schedule)
    assert job.table_optimizer == ours.table_optimizer


@pytest.mark.parametrize(
    "stated", ["learning_rate=0.1", "name=lamb", "schedule.scaling=linear", "schedule.base_batch=64"]
)
def test_a_rate_that_the_preset_leaves_alone_means_the_same_without_it(stated: str) -> None:
    document = apply_settings(DOCUMENT, parse_settings([f"dense_optimizer.{stated}"]))
    rate = parse_settings(["dense_optimizer.learning_rate=0.5"])
    plain = parse_job(apply_settings(document, rate)).dense_optimizer.schedule
    schedule = parse_job(apply_settings(document | {"preset": "large_batch"}, rate)).dense_optimizer.schedule
    assert (schedule.base_batch, schedule.scaling) == (plain.base_batch, plain.scaling)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batch.global_size", r"--set batch.global_size: not a field with a value \(valid: KEY=VALUE"),
        ("=5", "not a field with a value"),
        ("batch..size=5", r"--set batch..size: not a key \(valid: dotted names"),
        ("columns.user_*=5", "quote a part with other characters"),
        ("data.train=[1, 2", r"--set data.train: \[1, 2 is not valid TOML"),
        ('name="lamb', "not valid TOML"),
        ("data.train.2=c.tsv", r"--set data.train.2: data.train is a list without an entry '2' \(valid: 0 to 1\)"),
        ("batch.global_size.x=1", r"batch.global_size is 64, which has no field 'x'"),
    ],
)
def test_what_cannot_be_set_is_refused_with_the_key(text: str, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        apply_settings(DOCUMENT, parse_settings([text]))


def test_an_error_names_its_source_the_setting_or_the_file(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text('{"data": {"train": ["x"]}, "precision": "fp8"}')
    with pytest.raises(BadInputError) as refused:
        read_job(path, ["batch.global_sise=8", "run={ epochs = 0 }"])
    lines = sorted(refused.value.lines)
    assert lines[0].startswith("--set: batch.global_sise: unknown field; did you mean 'global_size'?")
    assert lines[1].startswith("--set: run.epochs: ")
    assert lines[2].startswith(f"{path}: precision: ")


def test_settings_are_for_job_documents_alone(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    (tmp_path / "day.tsv").write_text("x")
    ended = dlrm("data", "inspect", str(tmp_path / "day.tsv"), "--set", "data.eval_fraction=0.5")
    assert ended.code == 2
    assert "is not a job document" in ended.err
