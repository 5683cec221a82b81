"""Against a real S3 server on loopback."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from pyarrow import compute as pc
from pyarrow import fs, parquet
from pyiceberg.catalog.sql import SqlCatalog

from dlrm.config import CategoricalColumn, DataConfig, SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.prepare.fingerprint import check_unchanged
from dlrm.data.raw import stores
from dlrm.data.raw.files import find_files
from dlrm.data.raw.open import cut_blocks
from dlrm.data.raw.tables.table import TableFile
from tests.dlrm.data.raw.criteo_files import criteo_lines
from tests.dlrm.data.raw.plain import compressed, plain_rows, rows_of, tables_of
from tests.dlrm.data.raw.tables import count_rows, read_files

OBJECTS = {
    "data/day_1.tsv": "\n".join(criteo_lines(20)[10:]).encode(),
    "data/day_0.tsv": compressed("\n".join(criteo_lines(10)).encode(), "gzip"),
    "data/sub/day_2.tsv": b"2\n",
    "data/sub/_SUCCESS": b"",
    "data/_temporary/x.tsv": b"x\n",
    "data/.hidden": b"x\n",
    "empty/none.tsv": b"",
    "other/x.tsv": b"x\n",
    "many/part-10.tsv": b"x\n",
    "many/part-2.tsv": b"x\n",
}
VARIABLES = ("AWS_", "GOOGLE_", "CLOUDSDK_")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No credentials."""
    import os

    for name in list(os.environ):
        if name.startswith(VARIABLES):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    stores.clear_store_cache()
    yield
    stores.clear_store_cache()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    store = fs.S3FileSystem(
        access_key="me",
        secret_key="secret",
        endpoint_override=f"{host}:{port}",
        scheme="http",
        allow_bucket_creation=True,
    )
    store.create_dir("bucket")
    for key, content in OBJECTS.items():
        with store.open_output_stream(f"bucket/{key}") as stream:
            stream.write(content)
    table = pa.table({"label": [0, 1, 1], "color": ["red", None, "blue"]})
    parquet.write_table(table, "bucket/rows.parquet", filesystem=store)
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def configured(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)


def keys(pattern: str, roots: list[str] | None = None) -> list[str]:
    files = find_files([pattern], "data.train", roots, Path("/"))
    return [file.name.removeprefix("s3://bucket/") for file in files]


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("data/day_0.tsv", ["data/day_0.tsv"]),
        ("data", ["data/day_0.tsv", "data/day_1.tsv", "data/sub/day_2.tsv"]),
        ("data/", ["data/day_0.tsv", "data/day_1.tsv", "data/sub/day_2.tsv"]),
        ("data/day_*.tsv", ["data/day_0.tsv", "data/day_1.tsv"]),
        ("data/day_[1-9].tsv", ["data/day_1.tsv"]),
        ("data/day_?.tsv", ["data/day_0.tsv", "data/day_1.tsv"]),
        ("data/s*", ["data/sub/day_2.tsv"]),
        ("*/sub/*.tsv", ["data/sub/day_2.tsv"]),
        ("**/sub/**/**/*.tsv", ["data/sub/day_2.tsv"]),
        ("many", ["many/part-2.tsv", "many/part-10.tsv"]),
        ("many/**", ["many/part-2.tsv", "many/part-10.tsv"]),
        ("**/day_*.tsv", ["data/day_0.tsv", "data/day_1.tsv", "data/sub/day_2.tsv"]),
    ],
)
def test_objects_prefixes_and_patterns_are_found(pattern: str, found: list[str]) -> None:
    assert keys(f"s3://bucket/{pattern}") == found


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s3://bucket/none.tsv", "no such object"),
        ("s3://bucket/none*", "the pattern matches no object"),
        ("s3://bucket/data/day_0.tsv/x", "no such object"),
        ("s3://no-such-bucket/x", "no such object"),
        ("s3://bucket/empty", "s3://bucket/empty/none.tsv, data.train.0: the object is empty"),
        ("s3://bucket/data/../other/x.tsv", '".."'),
        ("s3://bucket/data//day_0.tsv", "an empty part"),
        ("s3://me:secret@bucket/data", "without credentials"),
        ("s3://bucket/x?endpoint_override=example.com", "matches no object"),
        ("s3://b*/x", "not the name of an object"),
        ("s3://", "not the name of an object"),
    ],
)
def test_a_missing_object_is_named(uri: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        keys(uri)
    assert message in str(caught.value)
    assert "data.train.0" in str(caught.value)
    assert ":secret@" not in str(caught.value)


@pytest.mark.usefixtures("configured")
def test_objects_lie_under_the_data_roots() -> None:
    roots = ["/tmp", "s3://bucket/data/"]
    assert keys("s3://bucket/data/sub", roots) == ["data/sub/day_2.tsv"]
    outside = ("other/x.tsv", "database/x.tsv", "*/x.tsv", "d*", "")
    for uri, allowed in [*((f"s3://bucket/{key}", roots) for key in outside), ("s3://bucket/data", ["/tmp"])]:
        with pytest.raises(DataError, match="outside the data roots"):
            keys(uri, allowed)
    with pytest.raises(DataError, match=r'"\.\."'):
        keys("s3://bucket/data/../other/x.tsv", roots)


@pytest.mark.usefixtures("configured")
def test_rows_of_objects_are_those_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("\n".join(criteo_lines(20)))
    config = DataConfig(train=["x"])
    remote = find_files(["s3://bucket/data/day_*"], "data.train", None, tmp_path)
    assert all(file.is_remote for file in remote)
    assert remote[1].get_identity()["num_bytes"] == len(OBJECTS["data/day_1.tsv"])
    local = find_files(["a.tsv"], "data.train", None, tmp_path)
    assert rows_of(cut_blocks(config, remote)) == rows_of(cut_blocks(config, local))


@pytest.mark.usefixtures("configured")
def test_parquet_objects_are_read() -> None:
    schema = SchemaConfig(categorical=[CategoricalColumn(name="color")])
    files = find_files(["s3://bucket/rows.parquet"], "data.train", None, Path("/"))
    config = DataConfig(train=["x"], format="parquet", schema=schema)
    rows = [row for table in tables_of(config, files) for row in plain_rows(table)]
    assert [(row.label, row.categorical) for row in rows] == [(0, ("red",)), (1, (None,)), (1, ("blue",))]


@pytest.mark.parametrize(
    ("uri", "variable"),
    [("s3://bucket/data", "AWS_ACCESS_KEY_ID"), ("gs://bucket/data", "GOOGLE_APPLICATION_CREDENTIALS")],
)
def test_a_store_that_is_not_configured_is_refused_with_what_to_set(uri: str, variable: str) -> None:
    with pytest.raises(DataError, match=f"no credentials for .* are configured .*{variable}"):
        keys(uri)


def test_credentials_may_stand_in_their_file(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = me\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert keys("s3://bucket/data/sub") == ["data/sub/day_2.tsv"]


@pytest.mark.usefixtures("configured")
def test_an_object_that_changes_after_it_was_found_is_refused(endpoint: str) -> None:
    address = endpoint.removeprefix("http://")
    store = fs.S3FileSystem(access_key="me", secret_key="secret", endpoint_override=address, scheme="http")

    def write(content: bytes) -> None:
        with store.open_output_stream("bucket/changing/rows.tsv") as stream:
            stream.write(content)

    write(b"1\n")
    files = find_files(["s3://bucket/changing/rows.tsv"], "data.train", None, Path("/"))
    # Some stores list times to the millisecond.
    check_unchanged([replace(file, modified_ns=file.modified_ns + 789_000_000) for file in files])
    check_unchanged(find_files(["s3://bucket/changing"], "data.train", None, Path("/")))
    write(b"1\n2\n")
    with pytest.raises(DataError, match="changed while it was read"):
        check_unchanged(files)
    store.delete_file("bucket/changing/rows.tsv")
    with pytest.raises(DataError, match="changed while it was read"):
        check_unchanged(files)


def write_delta(directory: Path, rows: pa.Table) -> None:
    deltalake.write_deltalake(directory / "delta", rows, partition_by=["place"])
    deltalake.DeltaTable(directory / "delta").create_checkpoint()
    deltalake.DeltaTable(directory / "delta").delete("id = 3")
    (directory / f"delta/_delta_log/{0:020}.json").unlink()


def write_iceberg(directory: Path, rows: pa.Table) -> None:
    catalog = SqlCatalog("c", uri=f"sqlite:///{directory}/catalog.db", warehouse=directory.as_uri())
    catalog.create_namespace("n")
    table = catalog.create_table("n.ice", schema=rows.schema)
    table.append(rows)
    table.delete("id = 3")


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize(
    ("source", "write", "first"),
    [
        ("delta", write_delta, f"_delta_log/{0:020}.checkpoint.parquet"),
        pytest.param("n/ice", write_iceberg, "metadata/00001-*.metadata.json", marks=pytest.mark.slow),
    ],
)
def test_tables_are_read_by_their_logs(
    endpoint: str, tmp_path: Path, source: str, write: Callable[[Path, pa.Table], None], first: str
) -> None:
    rows = pa.table({"id": range(10), "place": ["x/y é", "b c"] * 5})
    write(tmp_path, rows)
    store = fs.S3FileSystem(
        access_key="me", secret_key="secret", endpoint_override=endpoint.removeprefix("http://"), scheme="http"
    )
    fs.copy_files(f"{tmp_path}/{source}", f"bucket/lake/{source}", destination_filesystem=store)
    files = find_files([f"s3://bucket/lake/{source}"], "data.train", ["s3://bucket/lake"], Path("/"))
    assert count_rows(read_files(files)) == count_rows(rows.filter(pc.field("id") != 3))
    check_unchanged(files)
    (version,) = {file.table.place for file in files if isinstance(file, TableFile)}
    assert version == f"s3://bucket/lake/{source}"
    # The state before the deletion.
    (before,) = (path.relative_to(tmp_path) for path in (tmp_path / source).glob(first))
    whole = find_files([f"s3://bucket/lake/{before}"], "data.train", ["s3://bucket/lake"], Path("/"))
    assert count_rows(read_files(whole)) == count_rows(rows)
    with pytest.raises(DataError, match="is outside the data roots"):
        find_files([f"s3://bucket/lake/{before}"], "data.train", [f"s3://bucket/lake/{before}"], Path("/"))


@pytest.mark.usefixtures("configured")
def test_the_objects_of_a_table_are_refused(endpoint: str) -> None:
    address = endpoint.removeprefix("http://")
    store = fs.S3FileSystem(access_key="me", secret_key="secret", endpoint_override=address, scheme="http")
    for key in ("part-0.parquet", "_delta_log/0.json", "day=1/part-1.parquet"):
        with store.open_output_stream(f"bucket/tables/clicks/{key}") as stream:
            stream.write(b"x")
    for pattern in ("tables", "tables/*/*.parquet", "tables/clicks/day=1", "tables/clicks/day=1/*.parquet"):
        with pytest.raises(DataError, match=r"s3://bucket/tables/clicks.*: is a table of Delta Lake, whose directory"):
            keys(f"s3://bucket/{pattern}")
    with pytest.raises(DataError, match=r"s3://bucket/tables/clicks, data.train.0: is a table .* log cannot be read"):
        keys("s3://bucket/tables/clicks")
    assert keys("s3://bucket/tables/clicks/part-0.parquet") == ["tables/clicks/part-0.parquet"]
    assert keys("s3://bucket/*.parquet") == ["rows.parquet"]
