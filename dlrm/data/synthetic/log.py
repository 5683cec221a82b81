"""A synthetic click log in the shape of Criteo's: 13 dense and 26 categorical features, labels from a hidden teacher.

Row i is a function of (seed, num_ids, teacher, i) alone: it is the same in every process, in any order of reading, for
any number of rows. Only the quantiles of every column are stored.
"""

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dlrm.config import CRITEO_SCHEMA, SyntheticConfig
from dlrm.data.encode.encoders import MISSING_COUNT, compute_log_counts
from dlrm.data.rows import DataSchema, Feature, Rows, Runs, make_single_id_bags
from dlrm.data.synthetic.teacher import Teacher
from dlrm.data.threads import PieceThreads
from sharding.counter_random import random_bits, random_units, stream_key, stream_keys

DENSE_NAMES = tuple(column.name for column in CRITEO_SCHEMA.dense)
FEATURE_NAMES = tuple(column.name for column in CRITEO_SCHEMA.categorical)
NUM_DENSE, NUM_FEATURES = len(DENSE_NAMES), len(FEATURE_NAMES)


_MIN_NUM_IDS = 4
_FEATURES_BY_SIZE = (8, 19, 5, 16, 22, 24, 13, 4, 7, 21, 18, 0, 10, 1, 17, 12, 14, 6, 9, 23, 25, 3, 15, 20, 11, 2)
"""Categorical features from the smallest table to the largest, in an order similar to Criteo's."""
_INTERACTING_DENSE = [1, 4]

_MISSING_PERCENT = (0, 0, 4, 4, 0, 12, 0, 0, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 40, 40, 4, 35, 0, 4, 40, 40)
_DENSE_MISSING_PERCENT = (40, 0, 20, 20, 2, 22, 4, 0, 4, 40, 4, 35, 20)
_DENSE_MEDIAN = (1, 3, 6, 5, 400, 30, 3, 8, 40, 1, 2, 1, 4)
_DENSE_SPREAD = (1.2, 1.6, 1.3, 0.9, 1.7, 1.6, 1.3, 0.9, 1.4, 0.7, 1.0, 1.1, 0.9)
"""Standard deviations of the logarithms of the dense values, which are log-normal counts."""

_IDS, _DENSE, _LABELS, _TEACHER = range(4)
_BLOCK_ROWS = 4096
"""Rows generated at a time: few enough for a core's cache, and enough to make the time of Python itself small."""
_QUANTILE_BITS = 12
_NUM_QUANTILES = 1 << _QUANTILE_BITS
_FRACTION_BITS = 64 - _QUANTILE_BITS
_SAMPLE_ROWS = np.arange(1 << 41, (1 << 41) + (1 << 14), dtype=np.int64)
"""Row numbers beyond the end of every log; the teacher is scaled on these rows."""


class SyntheticRows:
    """The rows of one synthetic log, generated when they are read."""

    row_bytes = 4 * (1 + NUM_DENSE + NUM_FEATURES)
    """Bytes that a row would take in a packed file: rows are shuffled as if they were stored there."""

    def __init__(self, config: SyntheticConfig, num_threads: int = 1) -> None:
        """Set the log up. num_threads: that generate the rows of one call, which do not depend on it."""
        self._threads = PieceThreads(num_threads)
        self.num_rows = config.num_rows
        self.schema = make_log_schema(config)
        sizes = [feature.num_ids for feature in self.schema.features]
        self._dense_keys = stream_keys(config.seed, _DENSE, NUM_DENSE)
        self._id_keys = stream_keys(config.seed, _IDS, NUM_FEATURES)
        self._label_key = stream_key(config.seed, _LABELS)
        self._dense_quantiles = _compute_dense_quantiles()
        self._id_starts, self._id_widths = _compute_id_quantiles(sizes)
        dense, ids = self._generate_features(_SAMPLE_ROWS)
        teacher_seed = stream_key(config.seed, _TEACHER)
        # Those of small tables, whose ids are frequent, but for the smallest.
        interacting: list[int] = [*_FEATURES_BY_SIZE[1 : 1 + config.teacher.num_interacting]]
        self.teacher = Teacher(teacher_seed, config.teacher, interacting, _INTERACTING_DENSE, dense, ids)

    def read(self, row_numbers: NDArray[np.int64]) -> Rows:
        """Generate the rows of these numbers [n]; see `RowSource.read`."""
        return self._generate(row_numbers)[0]

    def read_weights(self, row_numbers: NDArray[np.int64]) -> None:  # noqa: ARG002
        """Return None: all rows have the same weight."""
        return

    def look_ahead(self, now: Runs, soon: Runs) -> None:
        """Do nothing: generated rows need no prefetch."""

    def best_probabilities(self, row_numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the probabilities [n] that the labels were drawn with; see `RowSource.best_probabilities`."""
        return self._generate(row_numbers)[1].astype(np.float64)

    def _generate(self, row_numbers: NDArray[np.int64]) -> tuple[Rows, NDArray[np.float32]]:
        """Generate the rows of these numbers [n], and the probabilities [n] that their labels are drawn with."""
        num_rows = len(row_numbers)
        dense = np.empty((num_rows, NUM_DENSE), dtype=np.float32)
        ids = np.empty((NUM_FEATURES, num_rows), dtype=np.int64)
        probabilities = np.empty(num_rows, dtype=np.float32)

        def generate_block(start: int) -> None:
            block = slice(start, start + _BLOCK_ROWS)
            block_dense, block_ids = self._generate_features(row_numbers[block])
            dense[block], ids[:, block] = block_dense, block_ids
            probabilities[block] = self.teacher.compute_probabilities(block_dense, block_ids)

        self._threads.map(generate_block, range(0, num_rows, _BLOCK_ROWS))
        labels = (random_units(self._label_key, row_numbers) < probabilities).astype(np.float32)
        return Rows(labels, dense, make_single_id_bags(ids)), probabilities

    def _generate_features(self, row_numbers: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Compute dense [n, N] and ids [F, n] from the quantiles that the random bits of each row select."""
        bits = random_bits(self._dense_keys, row_numbers)
        dense = np.ascontiguousarray(self._dense_quantiles.take(_select_quantiles(bits)).T)
        bits = random_bits(self._id_keys, row_numbers)
        quantile = _select_quantiles(bits)
        bits &= np.uint64((1 << _FRACTION_BITS) - 1)
        position = bits.view(np.int64) * 2.0**-_FRACTION_BITS
        position *= self._id_widths.take(quantile)
        position += self._id_starts.take(quantile)
        return dense, position.astype(np.int64)


def _select_quantiles(bits: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Convert bits [columns, n] to indices [columns, n] into the concatenated quantiles of all columns."""
    indices = (bits >> np.uint64(_FRACTION_BITS)).view(np.int64)
    indices += np.arange(len(bits), dtype=np.int64)[:, None] * _NUM_QUANTILES
    return indices


def make_log_schema(config: SyntheticConfig) -> DataSchema:
    """Return the schema of the log's rows.

    The rows of the tables are a geometric series from 4 to `num_ids` in the order of _FEATURES_BY_SIZE.
    """
    sizes = [0] * NUM_FEATURES
    for position, feature in enumerate(_FEATURES_BY_SIZE):
        growth = (config.num_ids / _MIN_NUM_IDS) ** (position / (NUM_FEATURES - 1))
        sizes[feature] = round(_MIN_NUM_IDS * growth)
    features = tuple(Feature(name, size) for name, size in zip(FEATURE_NAMES, sizes, strict=True))
    return DataSchema(NUM_DENSE, features)


def _compute_dense_quantiles() -> NDArray[np.float32]:
    """Compute the dense values that rows hold at evenly spaced quantiles, [N * _NUM_QUANTILES].

    Column follows column; in each, missing values come first.
    """
    columns: list[NDArray[np.float32]] = []
    for median, spread, percent in zip(_DENSE_MEDIAN, _DENSE_SPREAD, _DENSE_MISSING_PERCENT, strict=True):
        num_missing = _NUM_QUANTILES * percent // 100
        num_present = _NUM_QUANTILES - num_missing
        normal = NormalDist(math.log(median + 0.5), spread)
        counts = [math.floor(math.exp(normal.inv_cdf((k + 0.5) / num_present))) for k in range(num_present)]
        columns += [np.full(num_missing, MISSING_COUNT), compute_log_counts(np.array(counts, dtype=np.float64))]
    return np.concatenate(columns)


def _compute_id_quantiles(sizes: list[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the start and the width of each quantile of the ids, [F * _NUM_QUANTILES] each.

    Column follows column; in each, missing values, which have id 0, come first. Present ids are floor(size ** u) for u
    uniform in [0, 1): id k has probability log((k + 1) / k) / log(size), which is Zipf's law with exponent 1. Within a
    quantile the curve is approximated by a straight line.
    """
    starts: list[NDArray[np.float64]] = []
    widths: list[NDArray[np.float64]] = []
    for size, percent in zip(sizes, _MISSING_PERCENT, strict=True):
        num_missing = _NUM_QUANTILES * percent // 100
        num_present = _NUM_QUANTILES - num_missing
        edges = np.array([math.pow(size, k / num_present) for k in range(num_present + 1)])
        starts += [np.zeros(num_missing), edges[:-1]]
        widths += [np.zeros(num_missing), np.diff(edges)]
    return np.concatenate(starts), np.concatenate(widths)
