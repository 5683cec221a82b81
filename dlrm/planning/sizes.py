"""Finds how many rows the tables of a job have: from its data where that is prepared, else from its document.

Tables have the names of their columns here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dlrm.config import DataConfig, Hashing, ResolvedJob
from sharding.planner import Table

if TYPE_CHECKING:
    # It needs numpy, which is missing on some machines where plans are made.
    from dlrm.data.rows import Feature

MAX_NAMED = 5
"""Columns that an error lists."""
MULTI_HOT_IDS = 8.0
"""Mean number of ids in a list that is assumed: it is not known before a batch is read."""


@dataclass(frozen=True)
class Sizes:
    """The tables, and the other sizes of the data that the model depends on."""

    tables: list[Table]
    num_dense: int
    source: str
    """Source of the sizes, in words."""


class UnknownSizesError(ValueError):
    """Table sizes that are not known before the data is counted; the message says what to do."""


def find_sizes(resolved: ResolvedJob, prepared: Path | None) -> Sizes:
    """Find the sizes of a job's tables.

    prepared: a packed directory of the same rows, or None. Raises UnknownSizesError, DataError, and ImportError where
    only the trainer, which is not installed, could read them.
    """
    data, dim = resolved.job.data, resolved.job.model.embedding_dim
    if data.synthetic is not None:
        from dlrm.data.synthetic.log import schema_of_log

        schema = schema_of_log(data.synthetic)
        return Sizes(make_tables(schema.features, dim), schema.num_dense, "the synthetic log")
    if data.format == "packed":
        from dlrm.data.open import packed_directory

        prepared = packed_directory(data, resolved.data_roots)
    if prepared is None:
        return _sizes_in_document(data, dim)
    from dlrm.data.packed.open import packed_meta

    meta = packed_meta(prepared)
    schema = meta.schema_of_rows
    return Sizes(make_tables(schema.features, dim), schema.num_dense, f"the prepared rows in {prepared}")


def _sizes_in_document(data: DataConfig, dim: int) -> Sizes:
    tables: list[Table] = []
    unknown: list[str] = []
    for column in data.raw_schema.categorical:
        kind = data.vocabulary.of(column.name)
        if isinstance(kind, Hashing):
            tables.append(_table(column.name, kind.hash_size, dim, is_multi_hot=column.multi_hot))
        else:
            unknown.append(column.name)
    if unknown:
        listed = ", ".join(unknown[:MAX_NAMED])
        listed += f" and {len(unknown) - MAX_NAMED:,} more" if len(unknown) > MAX_NAMED else ""
        raise UnknownSizesError(
            f"how many rows the tables of {listed} get is not known before their values are counted: run `dlrm prepare "
            'JOB --output DIRECTORY`, then name DIRECTORY with data.format "packed"; or give them a hash_size in '
            "data.vocabulary"
        )
    # A column with missing values gets one more dense feature, which marks them; which columns have any is not known.
    return Sizes(tables, len(data.raw_schema.dense), "hash_size in the document")


def make_tables(features: "Sequence[Feature]", embedding_dim: int) -> list[Table]:
    """Return a table for each feature, with its name."""
    return [_table(f.name, f.num_ids, embedding_dim, is_multi_hot=f.is_multi_hot) for f in features]


def _table(name: str, num_rows: int, embedding_dim: int, *, is_multi_hot: bool) -> Table:
    return Table(name, num_rows, embedding_dim, MULTI_HOT_IDS if is_multi_hot else 1.0)
