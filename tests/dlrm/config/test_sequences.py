"""Columns whose lists are sequences, and the attention over them: what is refused, and what a message says."""

import json
from typing import Any

import pytest

from dlrm.config import ConfigError, ModelConfig, parse_job, resolve

FILM = {"name": "film"}


def seen(target: str = "film", **fields: Any) -> dict[str, Any]:
    return {"name": "seen", "multi_hot": True, "sequence": {"target": target, "max_length": 5}, **fields}


def document(
    *columns: dict[str, Any], vocabulary: dict[str, Any] | None = None, data: dict[str, Any] | None = None, **rest: Any
) -> dict[str, Any]:
    schema = {"categorical": list(columns) or [FILM, seen()]}
    files = {"format": "csv", "train": ["a.csv"], "schema": schema, "vocabulary": vocabulary or {}, **(data or {})}
    return {"data": files, **rest}


def fail(job: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_job(job)
    return "; ".join(str(error) for error in caught.value.errors)


def test_targets_are_found_by_their_numbers() -> None:
    columns = ({"name": "user"}, FILM, seen(), {**seen("user"), "name": "friends"})
    schema = parse_job(document(*columns)).data.raw_schema
    assert schema.target_numbers == {2: 1, 3: 0}


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ((FILM, seen(multi_hot=False)), "1.sequence: is of lists, and the column holds single values (valid: null, or"),
        ((FILM, seen("movie")), "1.sequence.target: 'movie' is no categorical column of single ids (valid: film)"),
        ((seen(),), "0.sequence.target: 'film' is no categorical column of single ids"),
        (({**FILM, "multi_hot": True}, seen()), "1.sequence.target: 'film' is no categorical column of single ids"),
        (({**FILM, "type": "integer"}, seen()), "1.type: 'string' differs from the type of 'film'"),
        ((FILM, seen(), {"name": "user"}), "2: 'user' comes after a sequence"),
        ((FILM, seen(sequence={"target": "film", "max_length": 1001})), "1.sequence.max_length: should be less than"),
        ((FILM, seen(sequence={"target": "film", "max_length": 0})), "1.sequence.max_length: should be greater than"),
        ((FILM, seen(sequence={"target": "film", "max_length": 5, "keep": "middle"})), "1.sequence.keep: 'middle' is"),
    ],
)
def test_a_sequence_that_cannot_be_is_refused_by_name(columns: tuple[dict[str, Any], ...], text: str) -> None:
    assert f"data.schema.categorical.{text}" in fail(document(*columns))


@pytest.mark.parametrize(
    ("vocabulary", "data", "text"),
    [
        ({"hash_size": 100, "num_hashes": 2}, {}, "'film' has several table rows for a value"),
        ({"columns": {"film": {"num_remainders": 10}}}, {}, "'film' has several table rows for a value"),
        (
            {"dynamic": {"max_rows": 100}},
            {"order": "time", "split": "tail", "window_rows": 1024},
            "'film' has ids that come and go",
        ),
    ],
)
def test_each_value_of_a_target_has_one_row_for_good(
    vocabulary: dict[str, Any], data: dict[str, Any], text: str
) -> None:
    assert text in fail(document(vocabulary=vocabulary, data=data))


def test_a_sequence_has_the_vocabulary_of_its_target() -> None:
    assert "'seen' matches no categorical column of ids" in fail(
        document(vocabulary={"columns": {"seen": {"min_count": 3}}})
    )


@pytest.mark.parametrize(("length", "chunk_size"), [(5, 2048), (100, 327), (1000, 32)])
def test_an_automatic_chunk_has_fewer_samples_if_sequences_are_long(length: int, chunk_size: int) -> None:
    columns = FILM, seen(sequence={"target": "film", "max_length": length})
    job = parse_job(document(*columns, batch={"global_size": 8192}))
    assert resolve(job).chunk_size == chunk_size


def test_a_preconditioner_is_refused() -> None:
    assert "preconditioner: has factors of linear layers over one row" in fail(document(preconditioner={}))


@pytest.mark.parametrize(
    "data",
    [{}, {"format": "synthetic", "train": [], "schema": None}, {"format": "criteo_tsv", "schema": None}],
    ids=["csv", "synthetic", "criteo_tsv"],
)
def test_attention_without_sequences_is_refused(data: dict[str, Any]) -> None:
    job = document(FILM, data=data, model={"attention": {"kind": "din"}})
    assert fail(job).startswith("model.attention: is over sequences, and the rows have none (valid: null, or a column")


@pytest.mark.parametrize(
    ("attention", "text"),
    [
        ({"kind": "gru"}, "attention.kind: 'gru' is not one of the choices"),
        (
            {"kind": "din", "num_heads": 2},
            "attention.num_heads: din has no num_heads (valid: leave it out, or set kind",
        ),
        ({"kind": "hstu", "hidden": [4]}, "attention.hidden: hstu has no hidden"),
        ({"kind": "hstu", "num_heads": 3}, "attention.num_heads: cannot cut the 16 elements of an embedding into 3"),
    ],
)
def test_settings_that_a_kind_of_attention_lacks_are_refused(attention: dict[str, Any], text: str) -> None:
    model = {"embedding_dim": 16, "bottom_mlp": [16], "attention": attention}
    assert f"model.{text}" in fail(document(model=model))


@pytest.mark.parametrize("kind", ["din", "transformer", "hstu"])
def test_attention_with_its_defaults_filled_in_is_the_same(kind: str) -> None:
    config = ModelConfig.model_validate({"attention": {"kind": kind}})
    assert ModelConfig.model_validate(json.loads(config.model_dump_json())) == config
