"""Files of other kinds, made by the libraries that write them: each is named for what it is, whatever its name."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet.encryption as pe
import pytest
import torch
from pyarrow import feather, ipc, orc, parquet

from dlrm.config import SchemaConfig
from dlrm.data.errors import DataError
from dlrm.data.raw.open import cut_raw_blocks, detect_format
from tests.dlrm.data.raw.plain import found

TABLE = pa.table({"label": [0, 1] * 50, "site": ["a", "b"] * 50})
CSV = b"label,site\n" + b"0,a\n1,b\n" * 50
SCHEMA = SchemaConfig.model_validate({"categorical": [{"name": "site"}]})


def to_bytes(write: Callable[[io.BytesIO], object]) -> bytes:
    sink = io.BytesIO()
    write(sink)
    return sink.getvalue()


def zipped(name: str) -> bytes:
    def write(sink: io.BytesIO) -> None:
        with zipfile.ZipFile(sink, "w") as archive:
            archive.writestr(name, CSV)

    return to_bytes(write)


def tarred() -> bytes:
    def write(sink: io.BytesIO) -> None:
        with tarfile.open(fileobj=sink, mode="w") as archive:
            member = tarfile.TarInfo("a.csv")
            member.size = len(CSV)
            archive.addfile(member, io.BytesIO(CSV))

    return to_bytes(write)


def make_database() -> bytes:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("create table rows (label, site)")
        return connection.serialize()


class _Vault(pe.KmsClient):
    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:  # noqa: ARG002
        return key_bytes.hex()

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:  # noqa: ARG002
        return bytes.fromhex(wrapped_key)


def encrypted() -> bytes:
    factory = pe.CryptoFactory(lambda _: _Vault())
    config = pe.EncryptionConfiguration(footer_key="k", column_keys={"k": ["label", "site"]})
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    return to_bytes(lambda sink: parquet.write_table(TABLE, sink, encryption_properties=properties))


ARROW_STREAM = to_bytes(lambda sink: ipc.new_stream(sink, TABLE.schema).write_table(TABLE))
PARQUET = to_bytes(lambda sink: parquet.write_table(TABLE, sink))


OBJECTS = [{"label": row % 2, "site": "ab"[row % 2]} for row in range(100)]
# Ten bytes of a length, the checksum of it, and then a protobuf message, as TFRecordWriter writes.
RECORD = (40).to_bytes(8, "little") + b"\x12\x34\x56\x78" + b"\x0a\x26" + bytes(range(38)) + bytes(4)
AVRO = b"Obj\x01\x04\x14avro.codec\x08null\x16avro.schema" + bytes(range(100))
SEQUENCE = b"SEQ\x06\x19org.apache.hadoop.io.Text" + bytes(64)

KINDS: list[tuple[str, bytes, str, str]] = [
    ("ORC", to_bytes(lambda sink: orc.write_table(TABLE, sink)), "is an ORC file", "Parquet"),
    ("Avro", AVRO, "is an Avro file", "Parquet"),
    ("Feather 1", b"FEA1" + bytes(60) + b"FEA1", "Feather file of version 1", "version 2"),
    ("encrypted Parquet", encrypted(), "is an encrypted Parquet file", "without encryption"),
    ("Git LFS", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1\n", "Git LFS", "git lfs pull"),
    ("XML", b'<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code></Error>', "is an XML document", "fetched"),
    ("XML without a head", b"<Error><Code>NoSuchKey</Code></Error>", "is an XML document", "fetched"),
    ("HTML", b"\r\n<!DOCTYPE html>\n<html><title>Sign in</title>", "is an HTML page", "fetched"),
    ("npz", to_bytes(lambda sink: np.savez(sink, x=np.arange(9))), "archive of numpy", "UTF-8 text"),
    ("npy", to_bytes(lambda sink: np.save(sink, np.arange(9))), "array of numpy", "UTF-8 text"),
    ("zip", zipped("a.csv"), "is a zip archive", "gzip or zstd"),
    ("xlsx", zipped("[Content_Types].xml"), "Excel workbook", "UTF-8 text"),
    ("xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "Excel workbook", "UTF-8 text"),
    ("torch", to_bytes(lambda sink: torch.save({"x": torch.ones(3)}, sink)), "a file of torch.save", "UTF-8 text"),
    ("tar", tarred(), "is a tar archive", "the files in it"),
    ("tar.gz", gzip.compress(tarred(), mtime=0), "is a tar archive compressed with gzip", "plain file"),
    ("Parquet in gzip", gzip.compress(PARQUET, mtime=0), "is a Parquet file compressed with gzip", "plain file"),
    (
        "gzip twice",
        gzip.compress(gzip.compress(CSV, mtime=0), mtime=0),
        "is compressed with gzip, and that with gzip",
        "plain file",
    ),
    ("bzip2", bz2.compress(CSV), "compressed with bzip2", "gzip or zstd"),
    ("xz", lzma.compress(CSV), "compressed with xz", "gzip or zstd"),
    ("lzma", lzma.compress(CSV, lzma.FORMAT_ALONE), "compressed with lzma", "gzip or zstd"),
    ("lz4", pa.compress(CSV, codec="lz4", asbytes=True), "compressed with lz4", "gzip or zstd"),
    ("pickle", pickle.dumps(TABLE.to_pydict()), "pickle of Python", "UTF-8 text"),
    ("SQLite", make_database(), "SQLite database", "UTF-8 text"),
    ("TFRecord", RECORD, "TFRecord", "UTF-8 text"),
    ("sequence file", SEQUENCE, "sequence file of Hadoop", "UTF-8 text"),
    ("UTF-16", CSV.decode().encode("utf-16"), "is UTF-16 text", "iconv -f utf-16"),
    ("UTF-16 without a mark", CSV.decode().encode("utf-16le"), "is UTF-16 text", "iconv -f utf-16le"),
    ("UTF-32", CSV.decode().encode("utf-32"), "is UTF-32 text", "iconv -f utf-32"),
    ("zeros", bytes(5000), "zeros alone", "a complete copy"),
    ("JSON array", json.dumps(OBJECTS).encode(), "is a JSON array", "jq -c"),
    ("indented JSON array", json.dumps(OBJECTS, indent=1).encode(), "is a JSON array", "jq -c"),
    ("indented JSON", json.dumps(OBJECTS[0], indent=1).encode(), "objects over several lines", "jq -c"),
    ("JSON error", b'{"error": {"code": 404}}\n', "a server's error message", "fetched"),
    ("Vowpal Wabbit", b"1 |a s=s3 |n price:0.5\n-1 |a s=s4 |n price:2\n" * 9, "Vowpal Wabbit", "each column"),
    ("libsvm", b"1 3:0.5 17:1 204:-1e-3\n-1 4:1 9:1\n" * 9, "libsvm", "load_svmlight_file"),
    ("svmlight with queries", b"1 qid:7 3:0.5 17:1 # x\n" * 9, "libsvm", "load_svmlight_file"),
    ("libffm", b"1 0:3:0.5 1:17:1 2:9:1\n" * 9, "libffm", "each column"),
    ("ARFF", b"% iris\n@RELATION iris\n@ATTRIBUTE x NUMERIC\n@DATA\n1,2\n", "ARFF", "@data"),
    ("CR alone", CSV.replace(b"\n", b"\r"), "the lines end in CR alone", "tr "),
]


def read(kind: str, path: Path) -> None:
    for block in cut_raw_blocks(kind, SCHEMA, [found(path)]):
        block.parse(False)


@pytest.mark.parametrize(("content", "message", "valid"), [kind[1:] for kind in KINDS], ids=[kind[0] for kind in KINDS])
def test_a_file_of_another_kind_is_named_by_every_reader(
    tmp_path: Path, content: bytes, message: str, valid: str
) -> None:
    path = tmp_path / "rows"
    path.write_bytes(content)
    for kind in (None, "csv", "jsonl", "arrow", "parquet"):
        with pytest.raises(DataError) as caught:
            detect_format(found(path)) if kind is None else read(kind, path)
        if kind in ("arrow", "parquet") and caught.value.message in ("is text", "is compressed with gzip"):
            # What is in the text concerns readers of text alone.
            continue
        assert message in caught.value.message, kind
        assert valid in caught.value.valid
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (CSV, "text"),
        (b"ORC,label\n1,0\n", "text"),
        (b"PAR1,label\n1,0\n", "text"),
        ("label,é\n".encode() + b"0,1\n", "text"),
        ("é".encode() * 5000 + b",label\n0,1\n", "text"),
        (b"\xef\xbb\xbf" + CSV, "text"),
        ("label,city\n0,Zürich\n".encode("latin1"), "text"),
        (b"0\x01a\x02b\x01\\N\n" * 9, "text"),
        (b"{name},label\na,0\n", "text"),
        (b"[a],label\n1,0\n", "text"),
        (b"<b>,label\n1,0\n", "text"),
        (b'{"label": 1}\n{"label": 0}\n', "jsonl"),
        (b'\xef\xbb\xbf{"label": 1}\r\n', "jsonl"),
        (b'# by hand\n\n{"label": 1}\n', "jsonl"),
        (b'{"label" 1}\n{"label": 0}\n', "jsonl"),
        (b"1 |a b|c\n0 |d e|f\n" * 9, "text"),
        (gzip.compress(b'{"label": 1}\n', mtime=0), "jsonl"),
        (PARQUET, "parquet"),
        (ARROW_STREAM, "arrow"),
        (to_bytes(lambda sink: feather.write_feather(TABLE, sink)), "arrow"),
    ],
)
def test_a_file_that_is_read_is_recognised_by_what_it_holds(tmp_path: Path, content: bytes, kind: str) -> None:
    path = tmp_path / "rows.parquet.csv"
    path.write_bytes(content)
    assert detect_format(found(path)) == kind


@pytest.mark.parametrize(
    ("kind", "other", "message"),
    [
        ("csv", PARQUET, 'is a Parquet file .valid: format "parquet"'),
        ("csv", b'{"label": 1}\n', 'is JSON Lines .valid: format "jsonl"'),
        ("csv", b'{"label": 1, "x": 2},\n', "begins like JSON Lines, but has no whole object on a line"),
        ("csv", b"{'label': 1, 'x': 2}\n", "begins like JSON Lines, but has no whole object on a line"),
        ("csv", b'[1, "a"]\n', "has a JSON array on each line"),
        ("criteo_tsv", b'{"label": 1}\n', 'is JSON Lines .valid: format "jsonl"'),
        ("parquet", CSV, 'is text .valid: format "csv" or "jsonl"'),
        ("arrow", PARQUET, 'is a Parquet file .valid: format "parquet"'),
        ("jsonl", CSV, "line 1: is not JSON"),
    ],
)
def test_a_format_that_does_not_fit_the_file_is_refused_with_the_one_that_does(
    tmp_path: Path, kind: str, other: bytes, message: str
) -> None:
    path = tmp_path / "rows"
    path.write_bytes(other)
    with pytest.raises(DataError, match=message):
        read(kind, path)
