"""The encoders of all columns: fitted once, then saved with the prepared data and with the model.

<directory>/encoders.json            the schema, the dense encoders and the kind of vocabulary of each column,
                                     with the edges of its ranges
            vocabulary-<f>.parquet   the values of counted column f in the order of their ids, and their counts
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pyarrow import parquet
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from dlrm.config import DenseColumn, SchemaConfig
from dlrm.data.encode.vocabulary import (
    CountedVocabulary,
    DynamicVocabulary,
    HashedVocabulary,
    RangeVocabulary,
    Vocabulary,
)
from dlrm.data.raw.block import CategoricalValues, RawTable
from dlrm.data.rows import DataSchema, Feature, Rows
from sharding.jagged import JaggedIds, SequenceShape

MISSING_COUNT = np.float32(-1.0)
"""Feature of a missing value with transform `log`; a present value gives at least 0."""
_MAX_FLOAT32 = float(np.finfo(np.float32).max)


def is_missing_as_before(
    columns: Sequence[DenseColumn], index: int, get_values: Callable[[int], NDArray[np.float64]]
) -> bool:
    """Whether a column and the one before it are elements of the same lists, and missing in the same rows.

    get_values: returns the values [n] of the column with an index. One indicator then serves both: mostly a whole list
    is missing.
    """
    if index == 0 or columns[index].element is None or columns[index - 1].name != columns[index].name:
        return False
    return np.array_equal(np.isnan(get_values(index - 1)), np.isnan(get_values(index)))


class DenseEncoder(BaseModel):
    """Encoder of one dense column, fitted on the training rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    column: DenseColumn
    mean: float = 0.0
    """Mean of the present values of the training rows; used by transform `standardise`."""
    standard_deviation: float = 1.0
    """Standard deviation of the present values of the training rows; 1 if all are equal."""
    has_indicator: bool = False
    """Whether there is a second feature, 1 where the value is missing and 0 elsewhere."""

    @property
    def names(self) -> list[str]:
        """Names of the one or two features that the column becomes."""
        name = self.column.feature
        return [name, f"{name} missing"] if self.has_indicator else [name]

    def encode(self, values: NDArray[np.float64]) -> list[NDArray[np.float32]]:
        """Compute the features of the column: one or two arrays [n], finite.

        values: [n], NaN where missing, otherwise within the range of float32.
        """
        if self.column.transform == "log":
            return [compute_log_counts(values)]
        is_missing = np.isnan(values)
        if self.column.transform == "standardise":
            with np.errstate(over="ignore"):
                # A value far outside the training data may exceed the range of float32.
                values = np.clip((values - self.mean) / self.standard_deviation, -_MAX_FLOAT32, _MAX_FLOAT32)
        feature = np.where(is_missing, 0.0, values).astype(np.float32)
        return [feature, is_missing.astype(np.float32)] if self.has_indicator else [feature]


def compute_log_counts(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Compute log(1 + max(value, 0)) of each value [n], and MISSING_COUNT where the value is NaN."""
    feature = np.log1p(np.maximum(values, 0.0)).astype(np.float32)
    feature[np.isnan(values)] = MISSING_COUNT
    return feature


FILE = "encoders.json"


@dataclass(frozen=True)
class Encoders:
    """The encoders of all columns, in the order of the schema."""

    schema: SchemaConfig
    dense: Sequence[DenseEncoder]
    vocabularies: Sequence[Vocabulary]
    """Vocabulary of each categorical column; sequences have the one of their target."""

    @property
    def dense_names(self) -> list[str]:
        """Names of the N dense features."""
        return [name for encoder in self.dense for name in encoder.names]

    @property
    def schema_of_rows(self) -> DataSchema:
        targets = self.schema.target_numbers
        columns = enumerate(zip(self.schema.categorical, self.vocabularies, strict=True))
        features = (
            Feature(
                column.feature,
                vocabulary.num_ids,
                column.multi_hot,
                len(vocabulary.missing_ids),
                None if column.sequence is None else SequenceShape(targets[number], column.sequence.max_length),
            )
            for number, (column, vocabulary) in columns
        )
        return DataSchema(len(self.dense_names), tuple(features))

    def encode(self, table: RawTable) -> Rows:
        """Encode the rows of `table` as a model reads them."""
        ids = [self.encode_ids(index, column) for index, column in enumerate(table.categorical)]
        lengths = [self.count_ids(index, column) for index, column in enumerate(table.categorical)]
        bags = JaggedIds(
            np.concatenate(ids) if ids else np.empty(0, dtype=np.int64),
            np.stack(lengths) if lengths else np.empty((0, table.num_rows), dtype=np.int32),
        )
        further = np.stack(table.further_labels, axis=1) if table.further_labels else None
        return Rows(table.labels, self.encode_dense(table), bags, table.weights, further)

    def encode_dense(self, table: RawTable) -> NDArray[np.float32]:
        """Compute the dense features [n, N] of the rows of `table`."""
        features = [
            feature
            for encoder, values in zip(self.dense, table.dense, strict=True)
            for feature in encoder.encode(values)
        ]
        return np.stack(features, axis=1) if features else np.empty((table.num_rows, 0), dtype=np.float32)

    def count_ids(self, index: int, column: CategoricalValues) -> NDArray[np.int32]:
        """Return the number of ids [n] that each row has in categorical column number `index`."""
        lengths = np.ones(column.num_rows, dtype=np.int32) if column.lengths is None else column.lengths
        return lengths * np.int32(len(self.vocabularies[index].missing_ids))

    def encode_ids(self, index: int, column: CategoricalValues) -> NDArray[np.int64]:
        """Compute the ids of categorical column number `index`: [n], or [sum of `count_ids`] if it has bags."""
        vocabulary = self.vocabularies[index]
        ids = vocabulary.encode(column.distinct)
        # Code -1, a missing value, indexes the last element.
        ids = np.append(ids, np.reshape(vocabulary.missing_ids, (1, *ids.shape[1:])), axis=0)
        return np.take(ids, column.codes, axis=0).ravel()

    def save(self, directory: Path) -> None:
        """Write the encoders to `directory`, which is created; equal encoders give equal bytes. Raises OSError."""
        directory.mkdir(parents=True, exist_ok=True)
        saved: list[_CountedRecord | _DynamicRecord | _SharedRecord | HashedVocabulary | RangeVocabulary] = []
        targets = self.schema.target_numbers
        for index, vocabulary in enumerate(self.vocabularies):
            if index in targets:
                saved.append(_SharedRecord(target=targets[index]))
                continue
            file = f"vocabulary-{index}.parquet"
            match vocabulary:
                case CountedVocabulary():
                    values = pl.DataFrame({"value": vocabulary.distinct, "count": vocabulary.counts})
                    saved.append(
                        _CountedRecord(file=file, num_ids=vocabulary.num_ids, num_remainders=vocabulary.num_remainders)
                    )
                case DynamicVocabulary():
                    columns = {"row": vocabulary.rows, "count": vocabulary.counts, "age": vocabulary.ages}
                    values = pl.DataFrame({"value": vocabulary.values, **columns})
                    saved.append(
                        _DynamicRecord(
                            file=file,
                            num_ids=vocabulary.num_ids,
                            num_used=vocabulary.num_used,
                            window_rows=vocabulary.window_rows,
                            base=vocabulary.base,
                            window_times=vocabulary.window_times.tolist(),
                        )
                    )
                case _:
                    saved.append(vocabulary)
                    continue
            # Written by Arrow, not polars, because Arrow reports a full disk as an OSError.
            parquet.write_table(values.to_arrow(), directory / file)
        record = _EncodersRecord(schema=self.schema, dense=list(self.dense), vocabularies=saved)
        (directory / FILE).write_text(record.model_dump_json(indent=1))

    @classmethod
    def load(cls, directory: Path) -> "Encoders":
        """Load what `save` wrote.

        Raises OSError, polars.exceptions.PolarsError, and ValueError where the files do not hold encoders.
        """
        saved = _EncodersRecord.model_validate_json((directory / FILE).read_bytes())
        vocabularies: list[Vocabulary] = []
        for entry in saved.vocabularies:
            if isinstance(entry, _SharedRecord):
                if entry.target >= len(vocabularies):
                    raise ValueError(
                        f"the vocabulary of a sequence is that of column {entry.target}, which comes later"
                    )
                vocabularies.append(vocabularies[entry.target])
                continue
            if not isinstance(entry, _CountedRecord | _DynamicRecord):
                vocabularies.append(entry)
                continue
            values = pl.read_parquet(directory / entry.file)
            if isinstance(entry, _CountedRecord):
                vocabularies.append(
                    CountedVocabulary(values["value"], values["count"].to_numpy(), entry.num_remainders)
                )
            else:
                rows, counts, ages = (values[name].to_numpy() for name in ("row", "count", "age"))
                numbers = entry.num_ids, entry.num_used or entry.num_ids, entry.window_rows, entry.base
                times = np.array(entry.window_times, dtype=np.float64)
                vocabularies.append(DynamicVocabulary(values["value"], rows, counts, ages, *numbers, times))
        return cls(saved.table_schema, saved.dense, vocabularies)


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)


VocabularyFile = Annotated[str, StringConstraints(pattern=r"^vocabulary-[0-9]+\.parquet$")]
"""Name of a file in the same directory; no path, as the author of a record may lack the right to read others."""


class _CountedRecord(_Record):
    kind: Literal["counted"] = "counted"
    file: VocabularyFile
    num_ids: int
    num_remainders: int | None = None


class _DynamicRecord(_Record):
    kind: Literal["dynamic"] = "dynamic"
    file: VocabularyFile
    num_ids: int
    num_used: int | None = None
    """Number of rows that any value has had; None in records of earlier versions, for all rows."""
    window_rows: int
    base: str | None
    window_times: list[float] = []


class _SharedRecord(_Record):
    """The vocabulary of a sequence, which is the one of its target, an earlier column."""

    kind: Literal["shared"] = "shared"
    target: int = Field(ge=0)


class _EncodersRecord(_Record):
    table_schema: SchemaConfig = Field(alias="schema")
    dense: list[DenseEncoder]
    vocabularies: list[
        Annotated[
            _CountedRecord | _DynamicRecord | _SharedRecord | HashedVocabulary | RangeVocabulary,
            Field(discriminator="kind"),
        ]
    ]
