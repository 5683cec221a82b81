"""Opening the data of a job: training and evaluation rows, whatever the format."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlrm.config import DataConfig, SyntheticConfig
from dlrm.data.criteo import read_criteo
from dlrm.data.dataset import Dataset
from dlrm.data.errors import DataError
from dlrm.data.paths import find_files
from dlrm.data.rows import RowSource, Subset
from dlrm.data.split import hash_split
from dlrm.data.synthetic import SyntheticRows
from dlrm.data.vocabulary import Vocabularies

_RATE_ROWS = 1 << 18
"""Synthetic training rows that the label rate is taken from: each costs its making."""
_WORKING_DIRECTORY = Path()


def open_data(
    config: DataConfig, data_roots: Sequence[str] | None, base_directory: Path = _WORKING_DIRECTORY
) -> Dataset:
    """The rows that `config` names.

    data_roots: directories that every real path must lie in; None allows all. base_directory: what relative paths count
    from. Raises DataError naming the file, line and field at fault.
    """
    if config.synthetic is not None:
        return _open_synthetic(config.synthetic, config.eval_fraction)
    train_files = find_files(config.train, "data.train", data_roots, base_directory)
    eval_files = find_files(config.eval or [], "data.eval", data_roots, base_directory)
    rows = read_criteo(train_files)
    if eval_files:
        vocabularies = rows.vocabularies(config.vocabulary, np.arange(rows.num_rows, dtype=np.int64))
        train = rows.encode(vocabularies)
        evaluation = read_criteo(eval_files).encode(vocabularies)
        rate = float(train.labels.mean(dtype=np.float64))
        return Dataset(train.schema, train, evaluation, rate, vocabularies)
    train_numbers, eval_numbers = _split(rows.num_rows, config.eval_fraction)
    vocabularies = rows.vocabularies(config.vocabulary, train_numbers)
    encoded = rows.encode(vocabularies)
    rate = float(encoded.labels[train_numbers].mean(dtype=np.float64))
    return Dataset(encoded.schema, Subset(encoded, train_numbers), Subset(encoded, eval_numbers), rate, vocabularies)


def open_rows(
    paths: Sequence[str],
    vocabularies: Vocabularies,
    data_roots: Sequence[str] | None,
    base_directory: Path = _WORKING_DIRECTORY,
) -> RowSource:
    """All rows of Criteo files, encoded with the vocabularies of a trained model. Raises DataError."""
    return read_criteo(find_files(paths, "data", data_roots, base_directory)).encode(vocabularies)


def _open_synthetic(config: SyntheticConfig, eval_fraction: float) -> Dataset:
    rows = SyntheticRows(config)
    train_numbers, eval_numbers = _split(rows.num_rows, eval_fraction)
    rate = float(rows.read(train_numbers[:_RATE_ROWS]).labels.mean(dtype=np.float64))
    return Dataset(rows.schema, Subset(rows, train_numbers), Subset(rows, eval_numbers), rate, vocabularies=None)


def _split(num_rows: int, eval_fraction: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    train, evaluation = hash_split(num_rows, eval_fraction)
    for kind, numbers, hint in (("training", train, "smaller"), ("evaluation", evaluation, "larger")):
        if not len(numbers):
            raise DataError(
                f"of {num_rows} rows none is left for {kind} at {eval_fraction}",
                field="data.eval_fraction",
                valid=f"a {hint} fraction, more rows, or files in data.eval",
            )
    return train, evaluation
