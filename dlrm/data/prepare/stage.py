"""Staging: raw files are parsed into parts once, and the later phases read the parts as often as they need.

A part is a parsed block on disk, an uncompressed Arrow IPC file that is mapped into memory when it is needed: one
record batch of one row, whose columns are lists, so that arrays of different lengths fit into one batch:
    labels, further-<k>, weights, times, good, dense-<i>, codes-<f>, distinct-<f>, lengths-<f>
Numbers are stored at half their width if that is exact, because disk space limits staging. The metadata of the
schema holds the `PartRecord`, which describes the part as a whole.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, TypeAdapter

from dlrm.config import DataConfig, SchemaConfig
from dlrm.data.prepare.progress import PreparationProgress
from dlrm.data.raw.block import BadRowCount, Block, CategoricalValues, Parsed, RawTable
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.odd_values import OddValues, add_odd_values
from dlrm.data.raw.open import cut_blocks
from dlrm.data.split import Split
from dlrm.data.threads import Workers
from dlrm.record import write_atomically

_RECORD = b"record"


class PartRecord(BaseModel):
    """Description of a part, available without reading its rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str
    """Raw file that the part comes from, as shown to users."""
    is_evaluation: bool
    """Whether the raw file is an evaluation file."""
    num_rows: int
    """Number of rows, bad ones included."""
    num_bad_rows: int
    num_bytes: int
    """Bytes of the raw file that the part was parsed from."""
    faults: list[str]
    """Error messages of the first bad rows."""
    label_values: list[str] = []
    """Some of the values of the label column, where the schema has a positive one."""
    odd_values: OddValues = {}

    @property
    def num_good_rows(self) -> int:
        return self.num_rows - self.num_bad_rows


RECORDS = TypeAdapter(list[PartRecord])


def write_part(path: Path, record: PartRecord, parsed: Parsed) -> PartRecord:
    """Write the rows of a part to `path` atomically, and return their description `record`."""
    arrays = _make_arrays(parsed)
    lists = {name: pa.LargeListArray.from_arrays(pa.array([0, len(a)], pa.int64()), a) for name, a in arrays.items()}
    fields = [pa.field(name, array.type) for name, array in lists.items()]
    schema = pa.schema(fields, metadata={_RECORD: record.model_dump_json().encode()})
    unfinished = path.with_name(f".{path.name}")
    with pa.OSFile(str(unfinished), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(list(lists.values()), schema=schema))
    unfinished.replace(path)
    return record


def read_record(path: Path) -> PartRecord:
    with pa.memory_map(str(path)) as file:
        return PartRecord.model_validate_json(pa.ipc.open_file(file).schema.metadata[_RECORD])


class StagedPart:
    """A part, mapped into memory; its arrays are read-only."""

    def __init__(self, path: Path, schema: SchemaConfig) -> None:
        """Map the part at `path`. schema: schema that its rows were parsed with."""
        self._schema = schema
        self._batch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
        self._names = set(self._batch.schema.names)

    @property
    def good(self) -> NDArray[np.bool_] | None:
        """Mask [num_rows] of the rows that the part holds, as in `Parsed`; None if it holds all."""
        good = self._get_optional_array("good")
        return None if good is None else good.view(np.bool_)

    @property
    def labels(self) -> NDArray[np.float32]:
        return self._get_array("labels")

    @property
    def further_labels(self) -> list[NDArray[np.float32]]:
        return [self._get_array(f"further-{index}") for index in range(len(self._schema.further_labels))]

    @property
    def weights(self) -> NDArray[np.float32] | None:
        return self._get_optional_array("weights")

    @property
    def times(self) -> NDArray[np.float64] | None:
        return self._get_optional_array("times")

    def dense(self, index: int) -> NDArray[np.float64]:
        return self._get_array(f"dense-{index}").astype(np.float64, copy=False)

    def lengths(self, index: int) -> NDArray[np.int32] | None:
        return self._get_optional_array(f"lengths-{index}")

    def categorical(self, index: int) -> CategoricalValues:
        distinct = pl.Series(self._get_values(f"distinct-{index}"))
        codes = self._get_array(f"codes-{index}").astype(np.int32, copy=False)
        return CategoricalValues(codes, distinct, self.lengths(index))

    @property
    def table(self) -> RawTable:
        return RawTable(
            self.labels,
            self.weights,
            [self.dense(index) for index in range(len(self._schema.dense))],
            [self.categorical(index) for index in range(len(self._schema.categorical))],
            further_labels=self.further_labels,
            times=self.times,
        )

    def _get_values(self, name: str) -> pa.Array:
        return self._batch.column(name).values

    def _get_array(self, name: str) -> NDArray[Any]:
        return self._get_values(name).to_numpy()

    def _get_optional_array(self, name: str) -> NDArray[Any] | None:
        return self._get_array(name) if name in self._names else None


def _make_arrays(parsed: Parsed) -> dict[str, pa.Array]:
    table = parsed.table
    arrays: dict[str, pa.Array] = {"labels": pa.array(table.labels)}
    arrays |= {f"further-{index}": pa.array(labels) for index, labels in enumerate(table.further_labels)}
    if table.weights is not None:
        arrays["weights"] = pa.array(table.weights)
    if table.times is not None:
        arrays["times"] = pa.array(table.times)
    if parsed.good is not None:
        arrays["good"] = pa.array(parsed.good.view(np.uint8))
    for index, values in enumerate(table.dense):
        arrays[f"dense-{index}"] = pa.array(_narrow(values, np.float32))
    for index, column in enumerate(table.categorical):
        arrays[f"codes-{index}"] = pa.array(_narrow(column.codes, np.int16))
        arrays[f"distinct-{index}"] = column.distinct.to_arrow()
        if column.lengths is not None:
            arrays[f"lengths-{index}"] = pa.array(column.lengths)
    return arrays


def _narrow(values: NDArray[Any], narrow_type: type[np.float32 | np.int16]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        narrowed = values.astype(narrow_type)
    return narrowed if np.array_equal(narrowed, values, equal_nan=narrow_type is np.float32) else values


@dataclass(frozen=True)
class Part:
    """One part and its position among the parts."""

    path: Path
    record: PartRecord
    start: int
    """Number of its first row, counted over the training files or over the evaluation files, bad rows included."""


@dataclass(frozen=True)
class StagedRows:
    """The parts of all files in order, training files before evaluation files."""

    schema: SchemaConfig
    parts: Sequence[Part]
    split: Split | None
    """Split of the training files' rows; None if evaluation rows have files of their own."""

    @property
    def num_good_rows(self) -> int:
        return sum(part.record.num_good_rows for part in self.parts)

    @property
    def num_bad_rows(self) -> int:
        return sum(part.record.num_bad_rows for part in self.parts)

    @property
    def odd_values(self) -> OddValues:
        total: OddValues = {}
        for part in self.parts:
            add_odd_values(total, part.record.odd_values)
        return total

    def open(self, part: Part) -> StagedPart:
        return StagedPart(part.path, self.schema)

    def is_held_out(self, part: Part, staged: StagedPart) -> NDArray[np.bool_]:
        """Whether each good row of the part is for evaluation: [num_good_rows] booleans."""
        if part.record.is_evaluation or self.split is None:
            return np.full(part.record.num_good_rows, part.record.is_evaluation)
        is_held_out = self.split.is_held_out(part.start, part.start + part.record.num_rows)
        return is_held_out if staged.good is None else is_held_out[staged.good]


StageRows = Callable[
    [DataConfig, Sequence[DataFile], Sequence[DataFile], Path, Workers, PreparationProgress], StagedRows
]
"""Function such as `stage`, which may leave some of the rows out."""
READING_SHARE = 0.5
"""Share of the progress of a preparation at which staging ends, 0 to 1."""


def stage(
    config: DataConfig,
    train: Sequence[DataFile],
    evaluation: Sequence[DataFile],
    directory: Path,
    workers: Workers,
    progress: PreparationProgress,
) -> StagedRows:
    """Parse all rows into parts in `directory`; parts that exist already are not parsed again.

    Raises DataError for the first bad row in the order of the files, for any number of threads; where
    `config.max_bad_fraction` is above 0, raises it at the end where the share of bad rows is larger.
    """
    directory.mkdir(exist_ok=True)
    progress.start("reading", READING_SHARE, sum(file.num_bytes for file in (*train, *evaluation)))
    listing = directory / "parts.json"
    is_staged = listing.exists()
    if is_staged:
        found = iter(RECORDS.validate_json(listing.read_bytes()))
    else:
        kinds = ((train, False), (evaluation, True))
        blocks = ((block, is_evaluation) for files, is_evaluation in kinds for block in cut_blocks(config, files))
        found = workers.map(partial(_stage_block, directory, config.max_bad_fraction > 0), enumerate(blocks))
    records: list[PartRecord] = []
    bad_rows = BadRowCount(config.max_bad_fraction, lambda fault: progress.note("bad_row", fault))
    for record in found:
        records.append(record)
        bad_rows.add(record.num_rows, record.num_bad_rows, record.faults)
        progress.advance(record.num_bytes, record.num_rows)
    bad_rows.check()
    if not is_staged:
        write_atomically(listing, RECORDS.dump_json(records))
    return _make_staged_rows(config, records, directory)


def _stage_block(directory: Path, keep_going: bool, numbered: tuple[int, tuple[Block, bool]]) -> PartRecord:
    """Parse a block, given with its number and whether it is of an evaluation file, unless its part exists."""
    number, (block, is_evaluation) = numbered
    path = get_part_path(directory, number)
    if path.exists():
        return read_record(path)
    parsed = block.parse(keep_going)
    record = PartRecord(
        file=block.file,
        is_evaluation=is_evaluation,
        num_rows=block.num_rows,
        num_bad_rows=block.num_rows - parsed.table.num_rows,
        num_bytes=block.num_bytes,
        faults=[str(fault) for fault in parsed.faults],
        label_values=list(parsed.table.label_values),
        odd_values=parsed.odd_values,
    )
    return write_part(path, record, parsed)


def get_part_path(directory: Path, number: int) -> Path:
    return directory / f"part-{number:06d}.arrow"


def _make_staged_rows(config: DataConfig, records: Sequence[PartRecord], directory: Path) -> StagedRows:
    parts: list[Part] = []
    num_rows = {False: 0, True: 0}
    for number, record in enumerate(records):
        parts.append(Part(get_part_path(directory, number), record, num_rows[record.is_evaluation]))
        num_rows[record.is_evaluation] += record.num_rows
    split = None if config.eval else Split(config.split, config.eval_fraction, num_rows[False])
    return StagedRows(config.raw_schema, parts, split)
