"""Output of scores: to a Parquet or CSV file, whole or not at all, or to the lines of a stream."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv, parquet

from dlrm.data.errors import DataError
from dlrm.record.files import sync_directory
from hostinfo.file_lock import try_lock

COLUMN = "probability"
_FIELD = "--output"

Write = Callable[[NDArray[np.float32]], None]
"""Function that writes the next scores [n], or [n, columns]; NaN becomes a missing value."""


@contextmanager
def open_score_file(path: Path, *, overwrite: bool, columns: Sequence[str] = (COLUMN,)) -> Iterator[Write]:
    """Write scores to `path`, one in each column for a row: Parquet or CSV, by the ending of its name.

    They are written to `<path>.part`, which is renamed to `path` at the end of the `with`, or removed where it ends in
    an error; a file that a killed process left there is overwritten by the next call. Raises DataError if `path`
    exists and `overwrite` is false, if it cannot be created, and if another process is writing it; and OSError,
    such as on a full disk.
    """
    is_parquet = path.suffix.lower() in (".parquet", ".pq")
    if not is_parquet and path.suffix.lower() != ".csv":
        raise DataError("has an unknown file format", path, field=_FIELD, valid="a name that ends in .parquet or .csv")
    _refuse_existing(path, overwrite)
    part = path.with_name(f"{path.name}.part")
    with _open_part(part, path) as file:
        writer: parquet.ParquetWriter | csv.CSVWriter | None = None
        try:
            schema = _make_schema(columns)
            writer = opened = parquet.ParquetWriter(file, schema) if is_parquet else csv.CSVWriter(file, schema)
            yield lambda scores: _write(path, lambda: opened.write_table(_make_table(scores, schema)))
            _write(path, writer.close)
            _write(path, file.flush)
            os.fsync(file.fileno())
            _refuse_existing(path, overwrite)
            part.replace(path)
            sync_directory(path.absolute().parent)
        except BaseException:
            part.unlink(missing_ok=True)
            # On closing, writer and file would write what they still buffer, and an error of that would hide this one.
            if isinstance(writer, parquet.ParquetWriter):
                writer.is_open = False
            with suppress(OSError):
                file.close()
            raise


@contextmanager
def open_score_lines(descriptor: int, columns: Sequence[str] = (COLUMN,)) -> Iterator[Write]:
    """Write scores to an open file, one row in a line, blank where missing. descriptor: closed at the end of the
    `with`."""
    schema = _make_schema(columns)
    with os.fdopen(descriptor, "wb") as file:
        without_header = csv.WriteOptions(include_header=False)
        with csv.CSVWriter(file, schema, write_options=without_header) as writer:
            yield lambda scores: writer.write_table(_make_table(scores, schema))


def _write(path: Path, write: Callable[[], object]) -> None:
    try:
        write()
    except OSError as error:
        raise OSError(f"{path}: cannot be written: {error.strerror or error}") from error


def _make_schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, pa.float32()) for name in columns])


def _make_table(scores: NDArray[np.float32], schema: pa.Schema) -> pa.Table:
    columns = scores.reshape(len(scores), len(schema)).T
    return pa.table([pa.array(column, mask=np.isnan(column)) for column in columns], schema=schema)


def _refuse_existing(path: Path, overwrite: bool) -> None:
    if path.is_dir():
        raise DataError("is a directory", path, field=_FIELD, valid="the name of a file")
    if path.exists() and not overwrite:
        raise DataError("exists already", path, field=_FIELD, valid="another name, or --overwrite")


@contextmanager
def _open_part(part: Path, path: Path) -> Iterator[BinaryIO]:
    """Open the file `part`, empty and locked against other processes. Raises DataError; path: name for messages."""
    try:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        valid = "a path where this user may create a file"
        raise DataError(f"cannot be created: {error.strerror}", path, field=_FIELD, valid=valid) from None
    with os.fdopen(descriptor, "wb") as file:
        if not try_lock(descriptor):
            message = "another process is writing it"
            raise DataError(message, path, field=_FIELD, valid="another name, or wait for it")
        file.truncate(0)
        yield file
