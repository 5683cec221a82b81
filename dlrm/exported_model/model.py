"""A trained model that scores rows in memory or in files."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from dlrm.config import SchemaConfig
from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.groups import Grouping, find_grouping
from dlrm.data.raw.block import BadRowCount
from dlrm.data.raw.files import find_files
from dlrm.data.raw.odd_values import OddValues, add_odd_values, describe_odd_values
from dlrm.data.raw.open import cut_raw_blocks
from dlrm.data.raw.text.jsonl import check_keys
from dlrm.data.raw.typed.typed_table import check_columns, parse_table
from dlrm.data.raw.values.columns import list_columns_to_read
from dlrm.data.rows import DataSchema, Feature
from dlrm.data.task_labels import find_task_labels
from dlrm.exported_model.delta import DeltaError, read_delta
from dlrm.exported_model.layout import Position, SavedConfig
from dlrm.exported_model.python_rows import make_table
from dlrm.exported_model.score import Piece, count_faults, make_block_pieces, predict, score, score_pieces
from dlrm.exported_model.sources import (
    COMMAND_ARGUMENTS,
    PYTHON_ARGUMENTS,
    Arguments,
    add_format_hints,
    find_format,
    make_schema_to_read,
)
from dlrm.model import PlainModel

if TYPE_CHECKING:
    from torchrec.modules.embedding_modules import EmbeddingBagCollection

_SLICE_ROWS = 65_536
"""Rows of a table that are encoded at a time."""
_BLOCK_BYTES = 4 << 20
"""Approximate bytes of a block of a file: less than in data preparation, since scoring takes longer than reading."""


class SavedModel:
    """A trained model with the encoders that it was trained with; `dlrm.load_model` returns it.

    Its inputs are raw values, as in the data files. Values that did not occur in the training rows are accepted; a
    missing value is None, NaN or null. All errors about rows are `dlrm.data.errors.DataError`, a ValueError whose text
    names the column and the valid values; it counts rows from 0 and lines of files from 1. For a model trained on
    Criteo TSV, text in a categorical column is hexadecimal, as in that format.
    """

    def __init__(
        self,
        directory: Path,
        module: PlainModel,
        config: SavedConfig,
        encoders: Encoders | None,
        metrics: Mapping[str, float | None],
        position: Position | None = None,
    ) -> None:
        """Assemble a loaded model; see `dlrm.exported_model.load.load_saved_model`.

        encoders: None if the model was trained on a synthetic log. position: deltas that it has taken; None if it can
        take none.
        """
        self.directory = directory
        self.module = module
        """Model in plain torch, in evaluation mode."""
        self.config = config
        """Settings of the model, its data and its training."""
        self.metrics = metrics
        """Final metrics of the run, by name."""
        self._encoders = encoders
        self._position = position

    @property
    def encoders(self) -> Encoders:
        """Encoders of raw values to the inputs of `module`. Raises DataError for a model of a synthetic log."""
        if self._encoders is None:
            message = "the model was trained on a synthetic log and cannot encode raw values"
            raise DataError(message, self.directory, valid="a model that was trained on files")
        return self._encoders

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks of the model; empty if it predicts one label."""
        return [task.name for task in self.config.model.tasks or ()]

    @property
    def grouping(self) -> Grouping | None:
        """Groups of rows within which the run has measured the model too; None if it has none."""
        run = self.config.training["run"]
        # Models of earlier versions lack both.
        group_by, recall_at = run.get("group_by"), run.get("recall_at")
        rows = DataSchema(self.config.num_dense, tuple(Feature(*item) for item in self.config.table_rows.items()))
        return find_grouping(group_by, recall_at, rows, self._encoders)

    @property
    def schema(self) -> SchemaConfig:
        """Columns that the model was trained on, label and weight included. Raises DataError as `encoders` does."""
        return self.encoders.schema

    @property
    def _schema_to_read(self) -> SchemaConfig:
        return make_schema_to_read(self.schema, self._raw_format)

    @property
    def _raw_format(self) -> str:
        """Format of the files that the model was trained on, perhaps by way of prepared rows."""
        return self.config.raw_format or self.config.data.format

    @property
    def columns(self) -> list[str]:
        """Names of the input columns, each once: dense, then categorical. Raises DataError as `encoders` does."""
        return self.schema.input_names

    def predict(self, rows: Mapping[str, Any]) -> NDArray[np.float32]:
        """Predict the probabilities [n] of label 1; [n, T] of a model with T > 1 tasks, in the order of `tasks`.

        A column has probabilities of a binary task, the numbers themselves of regression.
        rows: n values for each of `columns`, in a list or a numpy array; n lists for a column of lists. Or one row: one
        value for each column, a list for one of lists; n is 1 then. If all columns have lists, only the first form,
        with n lists per column, is possible. Label and weight may be present and are ignored.
        Raises DataError if a column is missing, unknown, or of another length or type.
        """
        return self.predict_table(make_table(rows, self._schema_to_read))

    def predict_table(self, table: Any) -> NDArray[np.float32]:
        """Predict for the rows of a table, as `predict` does.

        table: a pyarrow.Table, or a data frame of a library that supports Arrow, such as Polars or pandas. Columns are
        found by name, and other columns are ignored. Warns of values that it reads otherwise than they stand: infinity,
        for example, is read as missing. Raises DataError if a column is missing or of another type.
        """
        # Arrow's exchange between libraries, which copies no data, cuts names at a NUL.
        rows, schema = table if isinstance(table, pa.Table) else pa.table(table), self._schema_to_read
        check_columns(rows.schema, schema, None, with_labels=False)
        shape = (0,) if self.module.num_tasks == 1 else (0, self.module.num_tasks)
        scores, odd_values = [np.empty(shape, dtype=np.float32)], OddValues()
        for start in range(0, rows.num_rows, _SLICE_ROWS):
            part = rows.slice(start, _SLICE_ROWS)
            parsed = parse_table(part, start, None, schema, keep_going=False, with_labels=False)
            scores.append(predict(self.module, score(self.module, self.encoders.encode(parsed.table))))
            add_odd_values(odd_values, parsed.odd_values)
        _warn(odd_values)
        return np.concatenate(scores)

    def predict_files(
        self,
        patterns: str | Sequence[str],
        file_format: str | None = None,
        *,
        max_bad_fraction: float = 0.0,
        num_threads: int | None = None,
    ) -> Iterator[NDArray[np.float32]]:
        """Yield the predictions for the rows of files, in order, as arrays of `predict`, in bounded memory.

        patterns: files, directories and patterns, also of s3:// and gs://. file_format: "parquet", "csv", "jsonl",
        "arrow" or "criteo_tsv"; None to detect it. max_bad_fraction: share of the rows that may be unreadable; these
        get NaN, and DataError is raised at the end if there are more. num_threads: None for one per core. Raises
        DataError, which names file, line and column.
        """
        patterns = [patterns] if isinstance(patterns, str) else patterns
        bad_rows, odd_values = BadRowCount(max_bad_fraction, lambda _: None, "max_bad_fraction"), OddValues()
        pieces, _ = self.open_pieces(patterns, file_format, keep_going=max_bad_fraction > 0, arguments=PYTHON_ARGUMENTS)
        for piece in count_faults(score_pieces(self.module, pieces, num_threads), bad_rows, odd_values):
            yield piece.predictions
        _warn(odd_values)

    def apply_delta(self, path: Path | str) -> None:
        """Take the next delta of the run that this model is from: it then has the weights of a later step.

        path: a file that `run.deltas` left. The weights change in place, so that no other thread may predict meanwhile.
        Raises `dlrm.exported_model.delta.DeltaError`, a ValueError, if it is damaged, of another model or not the next
        one; the model is unchanged then.
        """
        if self._position is None:
            message = f"{self.directory}: a checkpoint, a compressed model or one with other tables takes no deltas"
            raise DeltaError(f"{message} (valid: the base of a run's deltas, loaded anew)")
        delta = read_delta(Path(path))
        delta.check_follows(self._position)
        delta.apply(self.module.state_dict())
        self._position = delta.record.position
        self.config = self.config.model_copy(update={"step": delta.record.step})

    def make_torchrec_tables(self) -> "EmbeddingBagCollection":
        """Make TorchRec's `EmbeddingBagCollection` of the tables, which shares their memory. Needs torchrec.

        Its state dict has `embedding_bags.<table>.weight`, and its features are the columns; ids are encoded ones.
        """
        # Imported late: scoring needs no torchrec, which takes seconds to load.
        from dlrm.exported_model.torchrec_tables import make_collection

        return make_collection(self.module, self.config)

    def load_torchrec_tables(self, state: Mapping[str, torch.Tensor]) -> None:
        """Copy the tables of an `EmbeddingBagCollection` into this model, which then scores with them. Needs torchrec.

        The copies are new tables: a collection that `make_torchrec_tables` has made before keeps the old ones.
        state: its state dict, on any device, with whole tables. Raises ValueError, naming the table, if one is
        missing, unknown or of another shape.
        """
        from dlrm.exported_model.torchrec_tables import load_collection

        load_collection(self.module, self.config, state)
        # A delta has the rows that differ from other weights than these.
        self._position = None

    def open_pieces(
        self,
        patterns: Sequence[str],
        file_format: str | None,
        *,
        keep_going: bool,
        with_labels: bool = False,
        output: Path | None = None,
        arguments: Arguments = COMMAND_ARGUMENTS,
    ) -> tuple[Iterator[Piece], int]:
        """Return the rows of raw files as pieces to score, and the bytes of all files together. Raises DataError.

        keep_going: leave bad rows out. output: file that the scores replace; it must be none of the files. arguments:
        names for messages.
        """
        encoders, model_format = self.encoders, self._raw_format
        files = find_files(patterns, arguments.data, None, Path(), refuses_repeats=not with_labels)
        if output is not None and str(output.resolve()) in {file.name for file in files}:
            raise DataError("is one of the files that are scored", output, field="--output", valid="another name")
        kind = find_format(files, encoders.schema, model_format, file_format, arguments)
        schema = self._schema_to_read
        if kind == "jsonl":
            check_keys(list_columns_to_read(schema, with_labels), files)
        blocks = cut_raw_blocks(kind, schema, files, with_labels=with_labels, block_bytes=_BLOCK_BYTES)
        blocks = add_format_hints(blocks, kind, schema, model_format, arguments)
        labels = find_task_labels(self.config.model.tasks if with_labels else None, encoders.schema)
        return make_block_pieces(blocks, encoders, labels, keep_going), sum(file.num_bytes for file in files)


def _warn(odd_values: OddValues) -> None:
    """Warn the caller of `SavedModel`, but for sequences that are shortened by their rule."""
    for description in describe_odd_values({kind: of for kind, of in odd_values.items() if kind != "shortened"}):
        warnings.warn(description, UserWarning, stacklevel=3)
