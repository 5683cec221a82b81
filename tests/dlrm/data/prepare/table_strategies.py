"""Tables made up for tests: rows as Python has them, written as Parquet, and what preparing them must lead to."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from pyarrow import parquet

from dlrm.config import CategoricalColumn, DataConfig, DenseColumn, SchemaConfig
from dlrm.data.packed.layout import (
    DENSE,
    IDS,
    LABELS,
    WEIGHTS,
    PackedMeta,
    Split,
    get_bag_offsets_name,
    get_bag_values_name,
)
from dlrm.data.prepare.prepare import prepare
from dlrm.data.prepare.progress import NoteEvent, ProgressEvent
from dlrm.data.raw.files import find_files

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
NUMBERS = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))
WIDE = st.floats(-(2.0**127), 2.0**127, width=32).filter(lambda value: abs(value) not in (2.0**63, 2.0**64))


@dataclass(frozen=True)
class MadeTable:
    """Rows, column by column; None where a value is missing."""

    schema: SchemaConfig
    columns: dict[str, list[Any]]

    @property
    def num_rows(self) -> int:
        return len(self.columns["label"])

    def write(self, path: Path, row_group_size: int | None = None) -> Path:
        types: dict[str, pa.DataType] = {"label": pa.int8(), "weight": pa.float32()}
        types |= {column.name: pa.float64() for column in self.schema.dense}
        for column in self.schema.categorical:
            kind = pa.string() if column.type == "string" else pa.int64()
            types[column.name] = pa.list_(kind) if column.multi_hot else kind
        arrays = {name: pa.array(values, types[name]) for name, values in self.columns.items()}
        parquet.write_table(pa.table(arrays), path, row_group_size=row_group_size or max(self.num_rows, 1))
        return path

    def rows(self, start: int, stop: int) -> "MadeTable":
        return MadeTable(self.schema, {name: values[start:stop] for name, values in self.columns.items()})


@st.composite
def made_tables(draw: st.DrawFn, max_rows: int = 40) -> MadeTable:
    """Any table: dense and categorical columns, at least one of them, of every kind."""
    num_rows = draw(st.integers(2, max_rows))
    num_dense = draw(st.integers(0, 3))
    num_categorical = draw(st.integers(0 if num_dense else 1, 4))
    transforms = st.sampled_from(["standardise", "log", "none"])
    dense = [DenseColumn.model_validate({"name": f"d{i}", "transform": draw(transforms)}) for i in range(num_dense)]
    categorical = [
        CategoricalColumn.model_validate(
            {"name": f"c{i}", "type": draw(st.sampled_from(["string", "integer"])), "multi_hot": draw(st.booleans())}
        )
        for i in range(num_categorical)
    ]
    has_weight = draw(st.booleans())
    schema = SchemaConfig(weight="weight" if has_weight else None, dense=dense, categorical=categorical)

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=num_rows, max_size=num_rows))

    columns: dict[str, list[Any]] = {"label": column(st.integers(0, 1))}
    if has_weight:
        columns["weight"] = column(st.floats(0.5, 8, width=32))
    for made in dense:
        columns[made.name] = column(st.one_of(st.none(), WIDE, st.integers(-3, 300).map(float)))
    for made in categorical:
        few = draw(st.lists(TEXTS if made.type == "string" else NUMBERS, min_size=1, max_size=6))
        value = st.one_of(st.none(), st.sampled_from(few))
        columns[made.name] = column(st.one_of(st.none(), st.lists(value, max_size=4)) if made.multi_hot else value)
    return MadeTable(schema, columns)


class EventRecorder:
    """Recorder of the events of a preparation."""

    def __init__(self) -> None:
        self.all: list[ProgressEvent | NoteEvent] = []

    def __call__(self, event: ProgressEvent | NoteEvent) -> None:
        self.all.append(event)

    @property
    def notes(self) -> list[str]:
        return [event.message for event in self.all if isinstance(event, NoteEvent)]


def data_config(schema: SchemaConfig | None, train: Sequence[Path], **fields: Any) -> DataConfig:
    """Of Parquet files with a schema, otherwise of Criteo TSV."""
    document: dict[str, Any] = {"train": [str(path) for path in train], **fields}
    if schema is not None:
        document |= {"format": "parquet", "schema": schema}
    return DataConfig.model_validate(document)


def prepare_all(config: DataConfig, output: Path, *, num_threads: int = 2, **others: Any) -> PackedMeta:
    train = find_files(config.train, "data.train", None, Path())
    evaluation = find_files(config.eval or [], "data.eval", None, Path())
    return prepare(
        config, train, evaluation, output, **{"num_threads": num_threads, "on_event": EventRecorder(), **others}
    )


@dataclass(frozen=True)
class PackedColumns:
    """One split of a packed directory, read without the loader."""

    labels: np.ndarray
    weights: np.ndarray | None
    dense: np.ndarray
    bags: list[list[list[int]]]
    """By feature, by row."""


def read_split(directory: Path, meta: PackedMeta, split: Split) -> PackedColumns:
    split_directory = directory / split
    num_rows = meta.splits[split].num_rows

    def array(name: str, kind: Any) -> np.ndarray:
        return np.fromfile(split_directory / name, dtype=kind)

    ids = array(IDS, meta.id_dtype).reshape(num_rows, len(meta.single_features))
    bags: list[list[list[int]]] = []
    for feature, feature_meta in enumerate(meta.features):
        if feature_meta.is_multi_hot:
            values, offsets = (
                array(get_bag_values_name(feature), meta.id_dtype),
                array(get_bag_offsets_name(feature), np.int64),
            )
            assert offsets[0] == 0
            assert offsets[-1] == len(values)
            bags.append([values[start:end].tolist() for start, end in pairwise(offsets)])
        else:
            bags.append([[row_id] for row_id in ids[:, meta.single_features.index(feature)].tolist()])
    weights = array(WEIGHTS, np.float32) if meta.has_weights else None
    dense = array(DENSE, np.float32).reshape(num_rows, len(meta.dense))
    return PackedColumns(array(LABELS, np.float32), weights, dense, bags)


def expected_ids(values: list[Any], is_training: Sequence[bool], min_count: int, is_multi_hot: bool) -> list[list[int]]:
    """The ids of every row of one column, worked out value by value."""
    rows = [([None] if value is None else value) if is_multi_hot else [value] for value in values]
    counts = Counter(
        value
        for row, counts_in in zip(rows, is_training, strict=True)
        if counts_in
        for value in set(row)
        if value is not None
    )
    frequent = [value for value, count in counts.items() if count >= min_count]
    frequent.sort(key=lambda value: (-counts[value], value.encode() if isinstance(value, str) else value))
    ids: dict[Any, int] = {value: index + 2 for index, value in enumerate(frequent)}
    ids[None] = 1
    return [[ids.get(value, 0) for value in row] for row in rows]


def expected_dense(values: list[float | None], is_training: Sequence[bool], transform: str) -> list[list[float]]:
    """The features of one dense column: of every row its value, and the indicator where there is one."""
    if transform == "log":
        return [[-1.0 if value is None else math.log1p(max(value, 0.0)) for value in values]]
    fitted = [value for value, counts_in in zip(values, is_training, strict=True) if counts_in]
    present = [value for value in fitted if value is not None]
    mean, deviation = 0.0, 1.0
    if transform == "standardise" and present:
        mean = math.fsum(present) / len(present)
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in present) / len(present)) or 1.0
        deviation = 1.0 if len(set(present)) == 1 else deviation
        mean = present[0] if len(set(present)) == 1 else mean
    features = [[0.0 if value is None else (value - mean) / deviation for value in values]]
    if None in fitted:
        features.append([float(value is None) for value in values])
    return features
