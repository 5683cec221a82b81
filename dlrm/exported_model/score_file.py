"""Where scores are written: a Parquet or CSV file that is there whole or not at all, or lines of a stream."""

import os
from collections.abc import Callable, Iterator
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
_SCHEMA = pa.schema([pa.field(COLUMN, pa.float32())])
_FIELD = "--output"

Write = Callable[[NDArray[np.float32]], None]
"""Writes the next scores; NaN becomes a missing value."""


@contextmanager
def score_file(path: Path, *, overwrite: bool) -> Iterator[Write]:
    """Write scores to `path`, one a row in column `probability`: Parquet or CSV, by its name.

    They are written to `<path>.part`, which gets the name at the end of the `with`, and goes where that ends in an
    error; what a kill leaves there, the next call writes over. Raises DataError where `path` exists, unless it may be
    written over, where it cannot be made, and where another process writes it; and OSError, such as on a full disk.
    """
    is_parquet = path.suffix.lower() in (".parquet", ".pq")
    if not is_parquet and path.suffix.lower() != ".csv":
        raise DataError("is of no known format", path, field=_FIELD, valid="a name that ends in .parquet or .csv")
    _refuse_existing(path, overwrite)
    part = path.with_name(f"{path.name}.part")
    with _opened(part, path) as file:
        writer: parquet.ParquetWriter | csv.CSVWriter | None = None
        try:
            writer = opened = parquet.ParquetWriter(file, _SCHEMA) if is_parquet else csv.CSVWriter(file, _SCHEMA)
            yield lambda scores: _written(path, lambda: opened.write_table(_table(scores)))
            _written(path, writer.close)
            _written(path, file.flush)
            os.fsync(file.fileno())
            _refuse_existing(path, overwrite)
            part.replace(path)
            sync_directory(path.absolute().parent)
        except BaseException:
            part.unlink(missing_ok=True)
            # Both would write once more what they hold, and that error would hide this one.
            if isinstance(writer, parquet.ParquetWriter):
                writer.is_open = False
            with suppress(OSError):
                file.close()
            raise


@contextmanager
def score_lines(descriptor: int) -> Iterator[Write]:
    """Write scores to an open file, one a line, blank where missing."""
    with os.fdopen(descriptor, "wb") as file:
        without_header = csv.WriteOptions(include_header=False)
        with csv.CSVWriter(file, _SCHEMA, write_options=without_header) as writer:
            yield lambda scores: writer.write_table(_table(scores))


def _written(path: Path, write: Callable[[], object]) -> None:
    try:
        write()
    except OSError as error:
        raise OSError(f"{path}: cannot be written: {error.strerror or error}") from error


def _table(scores: NDArray[np.float32]) -> pa.Table:
    return pa.table([pa.array(scores, mask=np.isnan(scores))], schema=_SCHEMA)


def _refuse_existing(path: Path, overwrite: bool) -> None:
    if path.is_dir():
        raise DataError("is a directory", path, field=_FIELD, valid="the name of a file")
    if path.exists() and not overwrite:
        raise DataError("exists already", path, field=_FIELD, valid="another name, or --overwrite")


@contextmanager
def _opened(part: Path, path: Path) -> Iterator[BinaryIO]:
    """The file, empty, and nobody else's."""
    try:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        valid = "a place where this user may make a file"
        raise DataError(f"cannot be made: {error.strerror}", path, field=_FIELD, valid=valid) from None
    with os.fdopen(descriptor, "wb") as file:
        if not try_lock(descriptor):
            message = "another process is writing it"
            raise DataError(message, path, field=_FIELD, valid="another name, or wait for it")
        file.truncate(0)
        yield file
