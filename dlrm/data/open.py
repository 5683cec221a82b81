"""Open the training and evaluation rows of a job, in any format."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dlrm.config import DataConfig, SyntheticConfig, TaskConfig, format_count
from dlrm.data.dataset import Dataset
from dlrm.data.errors import DataError
from dlrm.data.follow.open import open_followed
from dlrm.data.packed.open import open_packed
from dlrm.data.roots import Roots
from dlrm.data.rows import Subset
from dlrm.data.split import split_by_hash
from dlrm.data.synthetic.log import SyntheticRows
from dlrm.data.task_labels import choose_labels

_RATE_ROWS = 1 << 18
"""Synthetic training rows that the label rate is estimated from; each has to be generated for it."""


def open_data(
    config: DataConfig,
    data_roots: Sequence[str] | None,
    prepared: Path | None,
    num_threads: int = 1,
    tasks: Sequence[TaskConfig] | None = None,
) -> Dataset:
    """Open the rows that `config` names.

    data_roots: as in `find_files`, checked against the real path of packed rows. prepared: packed directory that raw
    rows were prepared into; None for other formats. num_threads: that read the rows of one batch. tasks: of the model,
    whose labels alone are read; None for one label. Raises DataError that names the file and field at fault, and
    ValueError if raw rows have not been prepared.
    """
    return choose_labels(_open_rows(config, data_roots, prepared, num_threads), tasks)


def _open_rows(
    config: DataConfig, data_roots: Sequence[str] | None, prepared: Path | None, num_threads: int
) -> Dataset:
    if config.synthetic is not None:
        return _open_synthetic(config.synthetic, config.eval_fraction, num_threads)
    if config.format == "packed":
        return _check_windows(config, open_packed(find_packed_directory(config, data_roots), num_threads))
    if prepared is None:
        raise ValueError(f"rows of format {config.format} must be prepared first")
    if config.follow is not None:
        assert config.window_rows is not None, "files are followed in order of time"
        return open_followed(prepared, config.window_rows, num_threads)
    return open_packed(prepared, num_threads)


def _check_windows(config: DataConfig, dataset: Dataset) -> Dataset:
    """Raise DataError if ids come and go in other windows than the rows are read in."""
    if dataset.window_rows is None or dataset.window_rows == config.window_rows:
        return dataset
    message = f"their ids come and go in windows of {dataset.window_rows:,} rows"
    valid = f'data.order = "time" and data.window_rows = {dataset.window_rows}'
    field = "data.order" if config.window_rows is None else "data.window_rows"
    raise DataError(message, dataset.directory, field=field, valid=valid)


def find_packed_directory(config: DataConfig, data_roots: Sequence[str] | None) -> Path:
    """Find the directory that a job of format `packed` names, and return its real path.

    Raises DataError if it is remote, does not exist or is outside `data_roots`.
    """
    named = config.train[0]
    if "://" in named:
        valid = "a local directory: packed rows are mapped into memory"
        raise DataError("cannot be mapped", named, field="data.train.0", valid=valid)
    real = Path(named).resolve()
    Roots(data_roots).check(real, named, "data.train.0", "a directory")
    if not real.is_dir():
        valid = "a directory that `dlrm prepare` has written"
        raise DataError("no such directory", real, field="data.train.0", valid=valid)
    return real


def _open_synthetic(config: SyntheticConfig, eval_fraction: float, num_threads: int) -> Dataset:
    rows = SyntheticRows(config, num_threads)
    split = split_by_hash(rows.num_rows, eval_fraction)
    for kind, numbers, hint in zip(("training", "evaluation"), split, ("smaller", "larger"), strict=True):
        if not len(numbers):
            size = format_count(rows.num_rows, "row")
            message = f"no row is left for {kind} with {size} at a fraction of {eval_fraction}"
            raise DataError(message, field="data.eval_fraction", valid=f"a {hint} fraction, or more rows")
    train, evaluation = (Subset(rows, len(numbers), numbers) for numbers in split)
    rate = float(train.read(np.arange(min(train.num_rows, _RATE_ROWS))).labels.mean(dtype=np.float64))
    return Dataset(rows.schema, train, evaluation, rate, encoders=None)
