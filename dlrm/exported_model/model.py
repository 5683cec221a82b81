"""A trained model that scores rows, wherever they are."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dlrm.config import SchemaConfig
from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.prepare.tolerance import BadRowCount
from dlrm.data.raw.files import find_files
from dlrm.data.raw.open import raw_blocks
from dlrm.data.raw.typed import check_columns, parsed_table
from dlrm.exported_model.layout import SavedConfig
from dlrm.exported_model.python_rows import table_of
from dlrm.exported_model.score import Piece, pieces_of_blocks, probabilities, score, score_pieces
from dlrm.exported_model.sources import OF_COMMAND, OF_PYTHON, Arguments, format_of, hinting_at_formats, schema_to_read
from dlrm.model import PlainModel

_SLICE_ROWS = 65_536
"""Of a table, encoded at a time."""
_BLOCK_BYTES = 4 << 20
"""Of files, read at a time: less than where they are prepared, since scoring takes longer than reading."""


class SavedModel:
    """What `dlrm.load_model` returns.

    Values are raw ones, as files hold them: the model brings the encoders that it was trained with. Values that the
    training rows did not have are fine; a missing value is None, NaN or null. All errors about rows are
    `dlrm.data.errors.DataError`, a ValueError whose text names the column and what would be valid; rows are counted
    from 0 there, lines of files from 1. To a model of Criteo TSV text of a categorical column is hexadecimal, as in it.
    """

    def __init__(
        self,
        directory: Path,
        module: PlainModel,
        config: SavedConfig,
        encoders: Encoders | None,
        metrics: Mapping[str, float | None],
    ) -> None:
        """See `dlrm.exported_model.load.load_saved_model`. encoders: None where it was trained on a synthetic log."""
        self.directory = directory
        self.module = module
        """In plain torch, in evaluation mode."""
        self.config = config
        """What it is and how it was trained."""
        self.metrics = metrics
        """What its run measured at the end, by name."""
        self._encoders = encoders

    @property
    def encoders(self) -> Encoders:
        """How raw values become what `module` takes. Raises DataError for a model of a synthetic log."""
        if self._encoders is None:
            message = "the model was trained on a synthetic log and knows no raw values"
            raise DataError(message, self.directory, valid="a model that was trained on files")
        return self._encoders

    @property
    def schema(self) -> SchemaConfig:
        """The columns it was trained on, label and weight among them. Raises DataError as `encoders` does."""
        return self.encoders.schema

    @property
    def _schema_to_read(self) -> SchemaConfig:
        return schema_to_read(self.schema, self.config.data.format)

    @property
    def columns(self) -> list[str]:
        """The names of the columns it scores by: dense, then categorical. Raises DataError as `encoders` does."""
        return [column.name for column in (*self.schema.dense, *self.schema.categorical)]

    def predict(self, rows: Mapping[str, Any]) -> NDArray[np.float32]:
        """The probabilities [n] of label 1.

        rows: n values for each of `columns`, in a list or a numpy array; n lists of values for a multi-hot column. Or
        one row: one value for each column, a list for a multi-hot one; n is 1 then. Where all columns are multi-hot
        there are n lists always. The label and the weight may be there and are not looked at. Raises DataError where a
        column is missing, unknown, of another length or type.
        """
        return self.predict_table(table_of(rows, self._schema_to_read))

    def predict_table(self, table: Any) -> NDArray[np.float32]:
        """The probabilities [n] of the rows of a pyarrow.Table, or of whatever speaks Arrow: polars, pandas.

        Columns are found by name, others are not looked at. Raises DataError where one is missing or of another type.
        """
        rows, schema = pa.table(table), self._schema_to_read
        check_columns(rows.schema, schema, None, with_labels=False)
        scores = [np.empty(0, dtype=np.float32)]
        for start in range(0, rows.num_rows, _SLICE_ROWS):
            part = rows.slice(start, _SLICE_ROWS)
            parsed = parsed_table(part, start, None, schema, keep_going=False, with_labels=False)
            scores.append(probabilities(score(self.module, self.encoders.encode(parsed.table))))
        return np.concatenate(scores)

    def predict_files(
        self,
        patterns: str | Sequence[str],
        file_format: str | None = None,
        *,
        max_bad_fraction: float = 0.0,
        num_threads: int | None = None,
    ) -> Iterator[NDArray[np.float32]]:
        """The probabilities of the rows of files, in their order, some [n] at a time, in bounded memory.

        patterns: files, directories, patterns, s3:// and gs:// too. file_format: "parquet", "csv" or "criteo_tsv"; None
        finds out. max_bad_fraction: share of the rows that may be unreadable; they get NaN, and more of them raise
        DataError at the end. num_threads: None takes all cores. Raises DataError naming file, line and column.
        """
        patterns = [patterns] if isinstance(patterns, str) else patterns
        bad_rows = BadRowCount(max_bad_fraction, lambda _: None, "max_bad_fraction")
        pieces, _ = self.raw_pieces(patterns, file_format, keep_going=max_bad_fraction > 0, arguments=OF_PYTHON)
        for scored in score_pieces(self.module, pieces, num_threads):
            bad_rows.add(scored.num_rows, scored.num_bad_rows, [str(fault) for fault in scored.read.faults])
            yield scored.of_all_rows
        bad_rows.check()

    def raw_pieces(
        self,
        patterns: Sequence[str],
        file_format: str | None,
        *,
        keep_going: bool,
        with_labels: bool = False,
        arguments: Arguments = OF_COMMAND,
    ) -> tuple[Iterator[Piece], int]:
        """The rows of raw files, to be scored, and the bytes of all files. Raises DataError."""
        encoders, own = self.encoders, self.config.data.format
        files = find_files(patterns, arguments.data, None, Path())
        kind = format_of(files, encoders.schema, own, file_format, arguments)
        schema = self._schema_to_read
        blocks = raw_blocks(kind, schema, files, with_labels=with_labels, block_bytes=_BLOCK_BYTES)
        blocks = hinting_at_formats(blocks, kind, schema, own, arguments)
        return pieces_of_blocks(blocks, encoders, keep_going), sum(file.num_bytes for file in files)
