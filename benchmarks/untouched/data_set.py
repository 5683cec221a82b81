"""One data set of the benchmark, and the files that it is written to."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from benchmarks.untouched.sources import Sources

_SPLIT_SEED = 7


@dataclass(frozen=True)
class Split:
    """Training rows and test rows, with the same columns."""

    train: pl.DataFrame
    test: pl.DataFrame


@dataclass(frozen=True)
class ExpertKinds:
    """Uses of the columns for the references, by someone who knows them. Other texts are categories, others numbers."""

    categorical: tuple[str, ...] = ()
    """Columns of numbers that are categories."""
    ignored: tuple[str, ...] = ()
    """Columns that the references do without: free text, constants, copies, and dates that `derived` takes apart."""
    derived: Mapping[str, pl.Expr] = field(default_factory=dict[str, pl.Expr])
    """Columns computed from others, by name."""


@dataclass(frozen=True)
class DataSet:
    """One data set: its rows, its label, and what an expert knows of its columns."""

    name: str
    label: str
    """Name of the label column."""
    load: Callable[[Sources], Split]
    """Function that reads the rows. Raises UnavailableError if they cannot be had."""
    positive: str = "1"
    """Label that stands for 1, as text."""
    is_label_told: bool = False
    """Whether `--infer` gets the label, since several columns of the file might be it."""
    file_format: Literal["csv", "parquet"] = "csv"
    kinds: ExpertKinds = field(default_factory=ExpertKinds)

    def list_columns(self, frame: pl.DataFrame) -> list[str]:
        """List the columns of `frame` except the label."""
        return [name for name in frame.columns if name != self.label]


@dataclass(frozen=True)
class SetFiles:
    """Files with the training rows and the test rows of a data set."""

    train: Path
    test: Path

    def read(self) -> Split:
        """Read both files."""
        if self.train.suffix == ".parquet":
            return Split(pl.read_parquet(self.train), pl.read_parquet(self.test))
        train = pl.read_csv(self.train, infer_schema_length=None)
        return Split(train, pl.read_csv(self.test, schema_overrides=train.schema))


def write_set(data_set: DataSet, sources: Sources, directory: Path) -> SetFiles:
    """Write the files of a data set below `directory`, unless they are there. Raises UnavailableError."""
    written = directory / data_set.name
    if not written.exists():
        split = data_set.load(sources)
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            files = Path(scratch, "files")
            files.mkdir()
            for frame, path in zip((split.train, split.test), _list_paths(data_set, files), strict=True):
                if data_set.file_format == "parquet":
                    frame.write_parquet(path)
                else:
                    frame.write_csv(path)
            files.rename(written)
    return SetFiles(*_list_paths(data_set, written))


def split_at_random(rows: pl.DataFrame, test_fraction: float = 0.2) -> Split:
    """Split rows at random, the same way every time."""
    is_test = pl.Series(np.random.default_rng(_SPLIT_SEED).random(rows.height) < test_fraction)
    return Split(rows.filter(~is_test), rows.filter(is_test))


def _list_paths(data_set: DataSet, directory: Path) -> list[Path]:
    return [directory / f"{part}.{data_set.file_format}" for part in ("train", "test")]
