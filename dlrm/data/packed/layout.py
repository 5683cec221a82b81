"""The packed format: rows ready to be trained on, in files that are mapped into memory.

<directory>/meta.json
  encoders/            encoders of the raw values: see dlrm.data.encode.encoders
  train/  eval/        one file per array, row-major, little-endian, without header:
    labels.bin         float32 [n]
    further_labels.bin float32 [n, K], NaN where missing, if the schema has K labels of further tasks
    weights.bin        float32 [n], where the schema has a weight
    dense.bin          float32 [n, N]
    ids.bin            int32, or int64 where a table is too large for int32, [n, F1]: features with one id per row
    bags-<f>.values.bin   the same type, [sum of lengths]: feature number f, where a row may have several ids
    bags-<f>.offsets.bin  int64 [n + 1]: the ids of row i are values[offsets[i] : offsets[i + 1]]
    reused-<f>.bin     int64 [k, 2], in train/, if ids of feature number f come and go: number of a window, and table
                       row that another id has from this window on; by window
"""

import hashlib
import json
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from dlrm.config.patterns import PACKED_META
from dlrm.data.errors import DataError
from dlrm.data.raw.odd_values import OddValues
from dlrm.data.rows import DataSchema, Feature
from sharding.jagged import SequenceShape

FORMAT_VERSION = 1
META = PACKED_META
ENCODERS = "encoders"
MIN_MEAN_WEIGHT, MAX_MEAN_WEIGHT = 1e-12, 1e12
"""Bounds of the mean weight of the training rows. Beyond them the squares of weighted gradients, which moments sum,
overflow or underflow in float32; far beyond, the gradients do so, too."""
VALID_MEAN_WEIGHT = (
    f"a mean from {MIN_MEAN_WEIGHT:g} to {MAX_MEAN_WEIGHT:g}: multiply all weights by the same number, which does not"
    " change what is learned"
)
Split = Literal["train", "eval"]
LABELS, WEIGHTS, DENSE, IDS = "labels.bin", "weights.bin", "dense.bin", "ids.bin"
FURTHER_LABELS = "further_labels.bin"


def get_bag_values_name(feature: int) -> str:
    """Return the file name of the ids in bags of feature number `feature`, counted over all features from 0."""
    return f"bags-{feature}.values.bin"


def get_bag_offsets_name(feature: int) -> str:
    return f"bags-{feature}.offsets.bin"


def get_reused_name(feature: int) -> str:
    """Return the file name of the rows of feature number `feature` that change hands."""
    return f"reused-{feature}.bin"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FeatureMeta(_Record):
    """Description of one categorical feature."""

    name: str
    num_ids: int
    is_multi_hot: bool
    ids_per_value: int = 1
    sequence: SequenceShape | None = None
    """Shape of the lists if their order counts: their ids are rows of the target's table."""


class SplitMeta(_Record):
    """Statistics of the rows of one split."""

    num_rows: int
    num_positives: int
    mean_weight: float
    """Mean weight of the rows; 1 where rows have no weights."""
    label_rate: float
    """Share of positive rows, each row counted by its weight; 0 if no row has a weight above 0."""

    @property
    def can_train(self) -> bool:
        """Whether float32 can represent gradients that are weighted with weights of this mean, and their squares."""
        return MIN_MEAN_WEIGHT <= self.mean_weight <= MAX_MEAN_WEIGHT


class FileMeta(_Record):
    """Size and checksum of one file of the directory."""

    num_bytes: int
    sha256: str


class PackedMeta(_Record):
    """Contents of `meta.json`, which is written last: identical for repeated preparations of the same data."""

    format_version: int = FORMAT_VERSION
    dense: list[str]
    """Names of the N dense features, including the indicators of missing values."""
    features: list[FeatureMeta]
    id_type: Literal["int32", "int64"]
    has_weights: bool
    num_further_labels: int = 0
    """Number of labels of further tasks, K; their names are in the schema of the encoders."""
    splits: dict[Split, SplitMeta]
    num_bad_rows: int
    """Number of bad rows that were left out."""
    odd_values: OddValues = {}
    """Values of the raw files, both splits together, that were read otherwise than they stand."""
    files: dict[str, FileMeta]
    """All files of rows and encoders, by path relative to the directory; `meta.json` itself is not among them."""
    sources: list[str]
    """The raw files, as shown to users."""
    tables: dict[str, str] = {}
    """Versions of the tables of Delta Lake and Iceberg that the raw files belong to, by the tables' directories, or by
    the named files of their logs."""
    window_rows: int | None = None
    """Number of training rows of a window, if ids come and go; None if they keep their rows."""
    raw_format: str | None = None
    """Format of the raw files, as in the job document; None in directories of earlier versions."""
    versions: dict[str, str]
    """Versions of Python, of this program and of the libraries that wrote the directory, by name."""

    @property
    def schema_of_rows(self) -> DataSchema:
        features = (Feature(f.name, f.num_ids, f.is_multi_hot, f.ids_per_value, f.sequence) for f in self.features)
        return DataSchema(len(self.dense), tuple(features))

    @property
    def id_dtype(self) -> np.dtype[np.int32] | np.dtype[np.int64]:
        return np.dtype(np.int32) if self.id_type == "int32" else np.dtype(np.int64)

    @property
    def single_features(self) -> list[int]:
        """Indices of the features with one id per row, in the order of the columns of ids.bin."""
        return [index for index, feature in enumerate(self.schema_of_rows.features) if not feature.has_bags]

    @property
    def bag_features(self) -> list[int]:
        """Indices of the features whose ids are in files of their own."""
        return [index for index, feature in enumerate(self.schema_of_rows.features) if feature.has_bags]


def compute_checksum(meta: PackedMeta, folders: tuple[str, ...] = ("",)) -> str:
    """Compute the checksum of the directory, or of some folders: a SHA-256 of names, sizes and SHA-256 of the files."""
    files = [[name, f.num_bytes, f.sha256] for name, f in sorted(meta.files.items()) if name.startswith(folders)]
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()


def compute_rows_checksum(meta: PackedMeta) -> str:
    """Compute the checksum of the rows alone, independent of the library versions that wrote the encoders."""
    return compute_checksum(meta, ("train/", "eval/"))


def read_meta(directory: Path) -> PackedMeta:
    """Read the `meta.json` of `directory`. Raises OSError, and pydantic.ValidationError where it is invalid."""
    return PackedMeta.model_validate_json((directory / META).read_bytes())


VALID = "a directory that `dlrm prepare` has written"


def open_packed_meta(directory: Path) -> PackedMeta:
    """Read the meta.json of a packed directory. Raises DataError if it is invalid or of another format version."""
    try:
        meta = read_meta(directory)
    except OSError as error:
        raise DataError(f"not readable: {error.strerror}", directory / META, valid=VALID) from None
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"]))
        raise DataError(first["msg"], directory / META, field=location or None, valid=VALID) from None
    if meta.format_version != FORMAT_VERSION:
        valid = f"{FORMAT_VERSION}; prepare the data again"
        raise DataError(f"is {meta.format_version}", directory / META, field="format_version", valid=valid)
    return meta
