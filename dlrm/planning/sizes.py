"""Finds how many rows the tables of a job have: from its data where it is prepared, else from its document.

Tables have the names of their features here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlrm.config import (
    DataConfig,
    Hashing,
    ModelConfig,
    ResolvedJob,
    SchemaConfig,
    SyntheticConfig,
    count_synthetic_train_rows,
    format_some,
)
from dlrm.planning.shortages import RowCounts
from sharding.jagged import SequenceShape
from sharding.planner import Table

if TYPE_CHECKING:
    # It needs numpy, which is missing on some machines where plans are made.
    from dlrm.data.rows import Feature

MAX_NAMED = 5
"""Columns that an error lists."""
COUNT_FIRST = (
    'run `dlrm prepare JOB --output DIRECTORY`, then name DIRECTORY with data.format "packed"; or set a hash_size for '
    "them in data.vocabulary"
)
"""Advice where the values of columns have not been counted, and could be."""
EXTEND_FIRST = (
    "run `dlrm prepare JOB --output DIRECTORY --extend MODEL` with the model that the run starts from, then name "
    'DIRECTORY with data.format "packed"'
)
"""The same advice for a warm start, whose vocabularies have the kinds of its model."""
RUNS_ANYWAY = "a job needs no plan to be submitted: its first attempt finds the sizes, and plans then"
MULTI_HOT_IDS = 8.0
"""Assumed mean number of ids in a list, which is unknown until a batch is read."""


@dataclass(frozen=True)
class Sizes:
    """The tables, and the other sizes of the data that the model depends on."""

    tables: list[Table]
    num_dense: int
    source: str
    """Source of the sizes, in words."""
    estimated_from: str | None = None
    """Rows from which some of the sizes are estimated, in words; None if all are known."""
    rows: RowCounts | None = None
    """Numbers of rows, which may be estimates too; None if the document alone gives the sizes."""
    sequences: tuple[SequenceShape, ...] = ()
    """Shapes of the features that are sequences."""

    def with_dims(self, model: ModelConfig) -> "Sizes":
        """Return the sizes with the embedding dimensions of another model."""
        dims = (model.choose_table_dim(table.name, table.num_rows) for table in self.tables)
        tables = [replace(table, embedding_dim=dim) for table, dim in zip(self.tables, dims, strict=True)]
        return replace(self, tables=tables)


class UnknownSizesError(ValueError):
    """Error of table sizes that are unknown until the data is counted; the message says what to do."""


def find_sizes(resolved: ResolvedJob, prepared: Path | None) -> Sizes:
    """Find the sizes of a job's tables.

    prepared: a packed directory of the same rows, or None. Raises UnknownSizesError, DataError, and ImportError if
    only the trainer, which is not installed, could read them.
    """
    data, model, is_warm = resolved.job.data, resolved.job.model, resolved.job.run.warm_start is not None
    if data.synthetic is not None:
        return _compute_synthetic_sizes(data, data.synthetic, model)
    if data.format == "packed":
        from dlrm.data.open import find_packed_directory

        prepared = find_packed_directory(data, resolved.data_roots)
    if prepared is None:
        return _get_sizes_in_document(data, model, f": {EXTEND_FIRST if is_warm else COUNT_FIRST}")
    from dlrm.data.packed.layout import open_packed_meta

    meta = open_packed_meta(prepared)
    schema = meta.schema_of_rows
    return Sizes(
        make_tables(schema.features, model),
        schema.num_dense,
        f"the prepared rows in {prepared}",
        rows=read_row_counts(prepared),
        sequences=schema.sequences,
    )


def find_sizes_without_rows(resolved: ResolvedJob, why: str) -> Sizes:
    """Find the sizes of a job's tables if nobody here can read its rows.

    why: reason why they cannot be read, to follow the words "the rows". Raises UnknownSizesError naming the field to
    state.
    """
    data, model = resolved.job.data, resolved.job.model
    if data.synthetic is not None:
        return _compute_synthetic_sizes(data, data.synthetic, model)
    if data.format == "packed":
        raise UnknownSizesError(
            f"data.train.0: the sizes of the tables are in {data.train[0]}, and the rows {why}: `dlrm plan` finds them "
            "on a machine that sees that directory; so does a document of raw rows with a hash_size in "
            f"data.vocabulary. {RUNS_ANYWAY.capitalize()}"
        )
    advice = ": set data.vocabulary.hash_size, or a hash_size for each of them in data.vocabulary.columns"
    if resolved.job.run.warm_start is not None:
        # It has the kinds of vocabulary of its model.
        advice = ""
    return _get_sizes_in_document(data, model, f", and the rows {why}{advice}. {RUNS_ANYWAY.capitalize()}")


def _compute_synthetic_sizes(data: DataConfig, log: SyntheticConfig, model: ModelConfig) -> Sizes:
    from dlrm.data.synthetic.log import make_log_schema

    schema, num_rows = make_log_schema(log), count_synthetic_train_rows(data)
    rows = RowCounts(num_rows, log.num_rows - num_rows, log.teacher.positive_rate)
    return Sizes(make_tables(schema.features, model), schema.num_dense, "the synthetic log", rows=rows)


def read_row_counts(prepared: Path) -> RowCounts:
    """Read the numbers of rows of a packed directory. Raises DataError."""
    from dlrm.data.packed.layout import open_packed_meta

    splits = open_packed_meta(prepared).splits
    # Rows of a growing set of files are measured before they are trained on, and none are held out.
    num_eval_rows = splits["eval"].num_rows or None
    return RowCounts(splits["train"].num_rows, num_eval_rows, splits["eval"].label_rate)


def _get_sizes_in_document(data: DataConfig, model: ModelConfig, advice: str) -> Sizes:
    """Return the sizes that a document of raw rows states.

    advice: how to get them otherwise, to follow the error. Raises UnknownSizesError.
    """
    tables: list[Table] = []
    unknown: list[str] = []
    for column in data.raw_schema.categorical:
        if column.sequence is not None:
            continue
        kind = data.vocabulary.get_rule(column.feature)
        num_rows = column.max_table_rows or (kind.hash_size if isinstance(kind, Hashing) else None)
        if num_rows is None:
            unknown.append(column.feature)
        else:
            ids_per_value = data.vocabulary.count_ids_per_value(column)
            tables.append(make_table(column.feature, num_rows, model, column.multi_hot, ids_per_value))
    if unknown:
        columns = format_some(unknown[:MAX_NAMED], len(unknown))
        raise UnknownSizesError(
            f"the numbers of rows of the tables of {columns} are unknown until their values are counted{advice}"
        )
    # A column with missing values gets one more dense feature, which marks them; which ones do is unknown here.
    sequences = list_sequences(data.raw_schema)
    tables = add_sequences(tables, sequences)
    return Sizes(tables, len(data.raw_schema.dense), "the job document", sequences=sequences)


def make_tables(features: "Sequence[Feature]", model: ModelConfig) -> list[Table]:
    """Return a table for each feature that has one, with its name."""
    tables = [
        make_table(f.name, f.num_ids, model, f.is_multi_hot, f.ids_per_value) for f in features if f.sequence is None
    ]
    return add_sequences(tables, [f.sequence for f in features if f.sequence is not None])


def list_sequences(schema: SchemaConfig) -> tuple[SequenceShape, ...]:
    """List the shapes of the sequences among the columns."""
    targets = schema.target_numbers
    return tuple(
        SequenceShape(targets[number], column.sequence.max_length)
        for number, column in enumerate(schema.categorical)
        if column.sequence is not None
    )


def add_sequences(tables: Sequence[Table], sequences: Sequence[SequenceShape]) -> list[Table]:
    """Return the tables with the ids that sequences read in them: as many as fit, since lengths are not known yet."""
    lengths = [sum(shape.max_length for shape in sequences if shape.target == number) for number in range(len(tables))]
    return [
        replace(
            table,
            ids_per_sample=table.ids_per_sample + length,
            embeddings_per_sample=table.embeddings_per_sample + length,
        )
        for table, length in zip(tables, lengths, strict=True)
    ]


def make_table(name: str, num_rows: int, model: ModelConfig, is_multi_hot: bool, ids_per_value: int) -> Table:
    """Return the table of one column."""
    dim = model.choose_table_dim(name, num_rows)
    return Table(name, num_rows, dim, ids_per_value * (MULTI_HOT_IDS if is_multi_hot else 1.0))
