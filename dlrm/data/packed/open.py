"""Open a packed directory, or parts of it, and verify that its files have not changed since they were written."""

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from polars.exceptions import PolarsError

from dlrm.data.dataset import Dataset
from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import (
    ENCODERS,
    META,
    VALID,
    VALID_MEAN_WEIGHT,
    PackedMeta,
    compute_rows_checksum,
    get_reused_name,
    open_packed_meta,
)
from dlrm.data.packed.rows import PackedRows, allow_open_files
from dlrm.record import PreparedData


def is_packed(path: Path) -> bool:
    """Whether `path` looks like a packed directory: it contains a meta.json."""
    return (path / META).is_file()


def open_packed(directory: Path, num_threads: int = 1) -> Dataset:
    """Open the rows of a packed directory. Raises DataError that names the invalid file or property.

    num_threads: that read the rows of one batch.
    """
    meta = open_packed_meta(directory)
    _check_rows(meta, directory)
    encoders = open_encoders(directory)
    allow_open_files(len(meta.files))
    train = meta.splits["train"]
    return Dataset(
        schema=meta.schema_of_rows,
        train=PackedRows(directory, "train", meta, num_threads),
        evaluation=PackedRows(directory, "eval", meta, num_threads),
        train_label_rate=train.label_rate,
        encoders=encoders,
        has_weights=meta.has_weights,
        mean_train_weight=train.mean_weight,
        eval_label_rate=meta.splits["eval"].label_rate,
        window_rows=meta.window_rows,
        reused=read_reused(directory, meta),
        directory=directory.resolve(),
    )


def read_reused(directory: Path, meta: PackedMeta) -> dict[int, NDArray[np.int64]]:
    """Read which rows of each feature change hands. Raises DataError."""
    found: dict[int, NDArray[np.int64]] = {}
    for index, feature in enumerate(meta.features):
        name = f"train/{get_reused_name(index)}"
        if name not in meta.files:
            continue
        try:
            reused = np.fromfile(directory / name, dtype="<i8").reshape(-1, 2)
        except (OSError, ValueError):
            raise DataError("not readable", directory / name, valid=VALID) from None
        if len(reused) and not (reused[:, 1].min() >= 0 and reused[:, 1].max() < feature.num_ids):
            valid = f"0 to {feature.num_ids - 1}, as meta.json says; prepare the data again"
            raise DataError(
                "names a row that the table does not have", directory / name, field=feature.name, valid=valid
            )
        found[index] = reused
    return found


def open_encoders(directory: Path) -> Encoders:
    """Load the encoders of a packed directory. Raises DataError if they cannot be read."""
    try:
        return Encoders.load(directory / ENCODERS)
    except (OSError, ValueError, PolarsError) as error:
        cause = " ".join(str(error).split())
        raise DataError(f"not readable: {cause}", directory / ENCODERS, valid=VALID) from None


def read_prepared_data(directory: Path) -> PreparedData:
    """Read the real path of a packed directory and the checksum of its rows. Raises DataError as `open_packed_meta`."""
    real = directory.resolve()
    meta = open_packed_meta(real)
    return PreparedData(directory=str(real), checksum=compute_rows_checksum(meta), tables=meta.tables)


def _check_rows(meta: PackedMeta, directory: Path) -> None:
    """Raise DataError if no model can be trained and evaluated on such rows."""
    if not meta.dense and not meta.features:
        valid = "rows with at least one: name a dense or a categorical column in the schema"
        raise DataError("the rows have no features", directory, valid=valid)
    for split in ("train", "eval"):
        split_meta = meta.splits.get(split)
        if split_meta is None or not split_meta.num_rows:
            raise DataError(f"there are no rows in {split}/", directory, valid="training and evaluation rows")
        if not split_meta.mean_weight > 0:
            raise DataError(f"the weights in {split}/ are all 0", directory, valid="weights above 0")
    if not meta.splits["train"].can_train:
        message = f"the weights in train/ have a mean of {meta.splits['train'].mean_weight:.3g}"
        raise DataError(message, directory, valid=VALID_MEAN_WEIGHT)


_PIECE_BYTES = 1 << 20


def compute_sha256(file: BinaryIO, advance: Callable[[int], None]) -> str:
    """Compute the SHA-256 of `file` from its current position, in hex.

    advance: called with the number of bytes of each piece that was read.
    """
    digest = hashlib.sha256()
    while piece := file.read(_PIECE_BYTES):
        digest.update(piece)
        advance(len(piece))
    return digest.hexdigest()


_VALID_FILES = "a directory as `dlrm prepare` has written it: prepare the data again"


def verify(directory: Path, meta: PackedMeta, num_threads: int, on_progress: Callable[[float], None]) -> None:
    """Read every file and compare its SHA-256. Raises DataError for the first file, by name, that differs.

    on_progress: called with the share of the bytes read so far, 0 to 1, by one thread at a time.
    """
    total = max(sum(file.num_bytes for file in meta.files.values()), 1)
    num_read = 0
    lock = threading.Lock()

    def advance(num_bytes: int) -> None:
        nonlocal num_read
        with lock:
            num_read += num_bytes
            on_progress(min(num_read / total, 1.0))

    def check(name: str) -> None:
        try:
            with (directory / name).open("rb") as file:
                found = compute_sha256(file, advance)
        except OSError as error:
            raise DataError(f"not readable: {error.strerror}", directory / name, valid=_VALID_FILES) from None
        if found != meta.files[name].sha256:
            message = "has changed since it was written: its SHA-256 differs from meta.json"
            raise DataError(message, directory / name, valid=_VALID_FILES)

    with ThreadPoolExecutor(num_threads, thread_name_prefix="verify") as executor:
        list(executor.map(check, sorted(meta.files)))
