"""Open a packed directory, or parts of it."""

from pathlib import Path

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
    open_packed_meta,
)
from dlrm.data.packed.mapped import allow_open_files
from dlrm.data.packed.rows import PackedRows
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
        directory=directory.resolve(),
    )


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
