"""The same table in every format: inferred alike, and read as the same rows."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import csv, feather, ipc, parquet

from dlrm.config import DataConfig
from dlrm.data.errors import DataError
from dlrm.data.inspect.report.job_files import check_files
from dlrm.data.inspect.sample.files import sample_files
from dlrm.data.raw.open import cut_blocks
from dlrm.planning.raw_sample import read_sample
from dlrm.programs.inspect import infer_schema
from tests.dlrm.data.raw.plain import found, rows_of

GENERATOR = random.Random(2)
NUM_ROWS = 3000


def draw_row(row: int) -> dict[str, Any]:
    user, site = GENERATOR.randrange(60), GENERATOR.choice(["a", "b", "é"])
    return {
        "label": int(GENERATOR.random() < (0.2 if user % 3 else 0.8)),
        "user": 2**53 + user,
        "site": site,
        "price": GENERATOR.choice([None, round(GENERATOR.random() * 9, 3)]),
        "row": row,
    }


ROWS = [draw_row(row) for row in range(NUM_ROWS)]


def write(path: Path, kind: str) -> None:
    table = pa.Table.from_pylist(ROWS)
    if kind == "csv":
        csv.write_csv(table, path)
    elif kind == "parquet":
        parquet.write_table(table, path)
    elif kind == "feather":
        feather.write_feather(table, path, chunksize=500)
    elif kind == "polars":
        pl.DataFrame(ROWS).with_columns(pl.col("site").cast(pl.Categorical)).write_ipc(path)
    elif kind == "stream":
        with pa.OSFile(str(path), "wb") as sink, ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=700)
    else:
        text = "".join(
            json.dumps({key: value for key, value in row.items() if value is not None}) + "\n" for row in ROWS
        )
        path.write_bytes(gzip.compress(text.encode()))


def make_config(inferred: dict[str, Any], path: Path) -> DataConfig:
    choices = inferred["choices"]
    schema = {
        "label": inferred["label"],
        "positive": inferred["positive"],
        "dense": [{"name": choice["name"], **choice["dense"]} for choice in choices if choice["dense"]],
        "categorical": [{"name": choice["name"], **use} for choice in choices for use in choice["categorical"]],
    }
    return DataConfig.model_validate({"train": [str(path)], "format": inferred["format"], "schema": schema})


@pytest.mark.parametrize(
    ("kind", "format_name"),
    [("csv", "csv"), ("feather", "arrow"), ("stream", "arrow"), ("polars", "arrow"), ("jsonl.gz", "jsonl")],
)
def test_a_table_is_inferred_and_read_alike_in_every_format(tmp_path: Path, kind: str, format_name: str) -> None:
    results: list[Any] = []
    for name in (kind, "parquet"):
        path = tmp_path / name
        write(path, name)
        inferred = infer_schema({"files": [str(path)], "eval": None, "label": None, "positive": None, "weight": None})
        assert inferred["num_rows"] == NUM_ROWS
        config = make_config(inferred, path)
        check_files(config)
        sample = read_sample(config, None)
        assert sample.num_rows_of_files == NUM_ROWS
        assert sum(piece.num_rows for piece in sample.pieces) == NUM_ROWS
        (block,) = cut_blocks(config, [found(path)])
        table = block.parse(False).table
        columns = [(column.codes.tolist(), column.distinct.to_list()) for column in table.categorical]
        results.append((config.table_schema, table.labels.tolist(), str([x.tolist() for x in table.dense]), columns))
        assert inferred["format"] == (format_name if name == kind else "parquet")
    assert results[0] == results[1]


def sample_json(path: Path, *objects: dict[str, Any]) -> Any:
    path.write_text("".join(json.dumps(line) + "\n" for line in objects))
    return sample_files("jsonl", [found(path)])


def test_columns_of_json_lines_have_the_types_of_their_values(tmp_path: Path) -> None:
    sample = sample_json(
        tmp_path / "rows",
        {"whole": 1.0, "flag": True, "ids": [1, 2.0], "words": ["a", 1], "u": {"id": 2**60 + 1, "x": {"y": "z"}}},
        {"whole": 2, "flag": None, "ids": [], "u": {"id": 3}, "code": "007", "mixed": [1], "dotted": {"a.b": 1}},
        {"whole": "3", "flag": False, "mixed": 2, "deep": [[1]], "price": "NA", "void": None, "blank": ""},
        {"price": 1.5, "n": 2**64},
        {"price": 2.5},
    )
    kinds = {name: kind for name, kind in sample.types.items() if not kind.startswith("not")}
    assert kinds == {
        "whole": "integer",
        "flag": "bool",
        "ids": "list of numbers",
        "words": "list of texts",
        "u.id": "integer",
        "u.x.y": "text",
        "code": "text",
        "price": "number",
        "n": "text",
        "void": "text",
        "blank": "text",
    }
    assert sample.rows["u.id"].to_list()[:2] == [2**60 + 1, 3]
    assert sample.rows["ids"].to_list()[:3] == [[1, 2], [], None]
    assert sample.missing == ["NA"]
    assert sample.types["mixed"] == "not of one type: integer, list"
    assert "a key of an object has a dot" in sample.types["dotted.a.b"]
    assert "list of lists" in sample.types["deep"]


def test_names_of_json_lines_that_no_reader_can_tell_apart_are_not_used(tmp_path: Path) -> None:
    sample = sample_json(
        tmp_path / "rows",
        {"": 1, "a.b": 1, "a": {"b": 2}, "c": {"d": {"e": 3}}},
        {"": 2, "a.b": 1, "a": {"b": 2}, "c": "text"},
    )
    assert sample.types == {
        "": "integer",
        "a.b": "not readable: a key of an object has a dot",
        "c.d.e": "not of one type: integer, object",
        "c": "not of one type: object, text",
    }


def test_a_key_that_no_line_has_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_text('{"label": 0, "user": {"id": 1}}\n{"label": 1}\n')
    config = {"train": [str(path)], "format": "jsonl", "schema": {"categorical": [{"name": "user.id"}]}}
    check_files(DataConfig.model_validate(config))
    path.write_text('{"label": 0, "user.id": 1}\n{"label": 1}\n')
    check_files(DataConfig.model_validate(config))
    config["schema"] = {"categorical": [{"name": "user.age"}]}
    with pytest.raises(DataError, match=r"rows, user\.age: no line has this key"):
        check_files(DataConfig.model_validate(config))


def test_a_document_of_json_lines_with_keys_of_any_characters_is_one_that_reads_them(tmp_path: Path) -> None:
    keys = ["", ".a", 'a"b', "a\0b", "a\nb", "a/b", "a<b", "\u00e9", "user", "user.id"]
    rows = [
        {"cli\0ck": GENERATOR.choice("ny")} | {key: f"{key}{GENERATOR.randrange(11)}" for key in keys}
        for _ in range(200)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    # Some programs write more characters with escapes than Python does.
    (tmp_path / "rows").write_text(text.replace("<", "\\u003c").replace('a/b":', 'a\\/b":'))
    request = {"files": [str(tmp_path / "rows")], "eval": None, "label": None, "positive": None, "weight": None}
    config = make_config(infer_schema(request | {"label": "cli\0ck", "positive": "y"}), tmp_path / "rows")
    check_files(config)
    names = [column.name for column in config.raw_schema.categorical]
    assert set(names) == set(keys) - {""}
    read = rows_of(cut_blocks(config, [found(tmp_path / "rows")]))
    assert [row.categorical for row in read] == [tuple(row[name] for name in names) for row in rows]


def test_names_of_json_lines_that_the_evaluation_lacks_are_told_with_their_twins(tmp_path: Path) -> None:
    (tmp_path / "train").write_text('{"label": 0, "ctx": {"site": "a"}, "x": 1}\n{"label": 1, "x": 2}\n')
    (tmp_path / "eval").write_text('{"label": 0, "context": {"site": "a"}, "x": 1}\n')
    sample = sample_files("jsonl", [found(tmp_path / "train")], [found(tmp_path / "eval")])
    assert sample.types["x"] == "integer"
    assert "not in" in sample.types["ctx.site"]
    assert "which has 'context.site'" in sample.types["ctx.site"]
