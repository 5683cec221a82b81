"""Tables and directories of Hive with the real commands, beside the same rows written without what was deleted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import StringType

from dlrm.record import RunDirectory
from tests.cli.conftest import run
from tests.dlrm.data.raw.delta_deletes import add_deletion_vector
from tests.dlrm.data.raw.iceberg_deletes import Delete, delete_rows

pytestmark = pytest.mark.slow

IS_DELETED = pc.equal(pc.bit_wise_and(pc.field("id"), 3), 3)
COUNTRIES = ("a/b é", "DE", None)


def make_rows(start: int, end: int, **columns: Any) -> pa.Table:
    random = np.random.default_rng(start)
    numbers = np.arange(start, end)
    label = (numbers % 5 > 2) ^ (random.random(len(numbers)) < 0.1)
    # Deleted rows have labels of their own, so that a model that has seen one differs.
    return pa.table(
        {
            "id": numbers,
            "label": np.where(numbers % 4 == 3, 1, label).astype(np.int64),
            "user": [f"u{number % 5}" for number in numbers],
            "price": random.normal(size=len(numbers)),
            "country": [COUNTRIES[number % 3] for number in numbers],
            **columns,
        }
    )


PARTS = [make_rows(0, 240), make_rows(240, 480, late=["l"] * 240)]


def write_delta(directory: Path, parts: list[pa.Table]) -> Path:
    for part in parts:
        configuration = {"delta.enableDeletionVectors": "true"}
        deltalake.write_deltalake(
            directory,
            part,
            mode="append",
            schema_mode="merge",
            partition_by=["country"],
            configuration=configuration,
        )
    return directory


def delete_from_delta(directory: Path) -> None:
    for name in deltalake.DeltaTable(directory).file_uris():
        ids = parquet.read_table(name, columns=["id"], partitioning=None)["id"].to_numpy()
        log_name = name.replace("%", "%25").replace(" ", "%20")
        add_deletion_vector(directory, log_name, np.flatnonzero(ids % 4 == 3).tolist())


def write_iceberg(directory: Path, parts: list[pa.Table], with_deletes: bool = False) -> Path:
    directory.mkdir()
    catalog = SqlCatalog("c", uri=f"sqlite:///{directory}/catalog.db", warehouse=directory.as_uri())
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=parts[0].schema, properties={"format-version": "2"})
    with table.update_spec() as spec:
        spec.add_identity("country")
    table.append(parts[0])
    with table.update_schema() as schema:
        schema.add_column("late", StringType())
    table.append(parts[1])
    if with_deletes:
        deletes: list[Delete] = []
        for task in table.scan().plan_files():
            path = task.file.file_path
            ids = parquet.read_table(path.removeprefix("file://"), columns=["id"], partitioning=None)["id"].to_numpy()
            rows = np.flatnonzero((ids % 4 == 3) & (ids < 300))
            positions = pa.table({"file_path": [path] * len(rows), "pos": rows})
            deletes.append(Delete(positions, None, table.metadata.default_spec_id, [*task.file.partition]))
        # The others are deleted by their values, whatever their partition.
        field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
        deletes.append(Delete(pa.table([np.arange(303, 480, 4)], schema=pa.schema([field])), [1]))
        delete_rows(table, deletes)
    return directory / "n" / "t"


def write_hive(directory: Path, parts: list[pa.Table]) -> Path:
    for country, place in zip(COUNTRIES, ("a%2Fb%20%C3%A9", "DE", "__HIVE_DEFAULT_PARTITION__"), strict=True):
        for number, part in enumerate(parts):
            is_here = pc.is_null(pc.field("country")) if country is None else pc.field("country") == country
            (directory / f"country={place}").mkdir(parents=True, exist_ok=True)
            rows = part.filter(is_here).drop(["country", *(["late"] if "late" in part.column_names else [])])
            late = [None if number == 0 else "l"] * rows.num_rows
            rows = rows.append_column("late", pa.array(late, pa.string()))
            parquet.write_table(rows, directory / f"country={place}/part-{number}.parquet")
    return directory


def write_both(kind: str, directory: Path) -> tuple[Path, Path]:
    """Write rows twice: with what has to be left out or found elsewhere, and plainly. Return both paths."""
    kept = [part.filter(~IS_DELETED) for part in PARTS]
    if kind == "delta":
        write_delta(directory / "source", PARTS)
        delete_from_delta(directory / "source")
        return directory / "source", write_delta(directory / "plain", kept)
    if kind == "iceberg":
        source = write_iceberg(directory / "source", PARTS, with_deletes=True)
        return source, write_iceberg(directory / "plain", kept)
    source = write_hive(directory / "source", kept)
    # The files of the paths in their natural order.
    rows = [
        parquet.read_table(path, partitioning=None).append_column("country", pa.array([value] * count, pa.string()))
        for place, value in (("DE", "DE"), ("__HIVE_DEFAULT_PARTITION__", None), ("a%2Fb%20%C3%A9", "a/b é"))
        for path in sorted((source / f"country={place}").iterdir())
        for count in [parquet.read_metadata(path).num_rows]
    ]
    # Rows that are scored together decide the last bits of scores.
    with parquet.ParquetWriter(directory / "plain.parquet", rows[0].schema) as writer:
        for group in rows:
            writer.write_table(group)
    return source, directory / "plain.parquet"


def run_json(*arguments: object) -> dict[str, Any]:
    ended = run(*arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", ["delta", "iceberg", "hive"])
def test_models_and_scores_are_those_of_rows_without_the_deleted_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("DLRM_STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.setenv("DLRM_PREPARED_DIRECTORY", str(tmp_path / "prepared"))
    found: list[dict[str, Any]] = []
    for number, path in enumerate(write_both(kind, tmp_path)):
        names = ("user", "country", "late")
        document = {
            "data": {
                "train": [str(path)],
                "format": "parquet",
                "split": "tail",
                "schema": {"dense": [{"name": "price"}], "categorical": [{"name": name} for name in names]},
            },
            "model": {"architecture": "dlrm", "embedding_dim": 4, "bottom_mlp": [8, 4], "top_mlp": [8, 1]},
            "batch": {"global_size": 64},
            "run": {"yardsticks": "none", "blend": "none", "epochs": 1},
        }
        job = tmp_path / f"job-{number}.json"
        job.write_text(json.dumps(document))
        directory, scores = RunDirectory(tmp_path / f"run-{number}"), tmp_path / f"{number}.parquet"
        run_json("train", job, "--run-directory", directory.path)
        inspected = run("data", "inspect", job)
        assert inspected.returncode == 0, inspected.stderr
        predicted = run_json("predict", directory.model, path, "--output", scores)
        measured = run_json("evaluate", directory.model, path)
        found.append(
            {
                "weights": (directory.model / "model.safetensors").read_bytes(),
                "inspected": inspected.stdout,
                "num_rows": predicted["num_rows"],
                "scores": parquet.read_table(scores).to_pydict(),
                "auc": measured["auc"],
            }
        )
    assert found[0]["num_rows"] == 360
    assert "read                  all 360 rows" in found[0]["inspected"]
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_without_the_library_the_error_says_how_to_install_it(tmp_path: Path, kind: str) -> None:
    write: Callable[..., Path] = write_delta if kind == "delta" else write_iceberg
    path = write(tmp_path / "table", PARTS)
    hidden = tmp_path / "hidden"
    for name in ("deltalake", "pyiceberg"):
        (hidden / name).mkdir(parents=True)
        (hidden / name / "__init__.py").write_text("raise ImportError")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{hidden}:{Path.cwd()}")
        ended = run("prepare", "--infer", path, "--output", tmp_path / "job.toml")
    assert ended.returncode == 2
    assert "is not installed (valid: pip install 'dlrm-service[tables]'" in ended.stderr
