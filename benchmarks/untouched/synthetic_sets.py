"""Data sets made of the product's synthetic log: hashed ids, and columns as odd as in real files."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.untouched.data_set import DataSet, ExpertKinds, Split, split_at_random
from dlrm.config import SyntheticConfig
from dlrm.data.rows import Rows
from dlrm.data.synthetic.log import SyntheticRows
from sharding.counter_random import random_bits, stream_key

_FIRST_DAY = np.datetime64("2025-03-01")
_NUM_SECONDS = 30 * 86_400
_NUM_DENSE_OF_SIGNED_LOG = 6


def make_hexadecimal_log(num_rows: int) -> Split:
    """Make a log of ids with eight hexadecimal digits, and of counts, -1 if missing."""
    rows = _generate(SyntheticConfig(num_rows=num_rows, seed=11, num_ids=5_000))
    counts = np.rint(np.expm1(rows.dense.astype(np.float64))).astype(np.int64)
    columns = {"click": rows.labels.astype(np.int8)}
    columns |= {f"n{index}": counts[:, index] for index in range(counts.shape[1])}
    hashed = {
        f"c{index}": [f"{bits >> 32:08x}" for bits in _hash(index, ids).tolist()]
        for index, ids in enumerate(rows.id_matrix)
    }
    return split_at_random(pl.DataFrame({**columns, **hashed}))


def make_signed_log(num_rows: int) -> Split:
    """Make a log of ids that are signed integers, with a text label and columns without information.

    These are row numbers as pandas leaves them, a constant, a copy of an id, random times and free text.
    """
    rows = _generate(SyntheticConfig(num_rows=num_rows, seed=12, num_ids=3_000))
    random = np.random.default_rng(20261122)
    times = _FIRST_DAY + random.integers(0, _NUM_SECONDS, num_rows).astype("timedelta64[s]")
    orders, depots = random.integers(0, 10**9, (2, num_rows)).tolist()
    ids = {f"v{index}": _hash_signed(index, ids) for index, ids in enumerate(rows.id_matrix)}
    numbers = {f"n{index}": rows.dense[:, index] for index in range(_NUM_DENSE_OF_SIGNED_LOG)}
    columns = {
        "__index_level_0__": random.permutation(num_rows),
        "y": np.where(rows.labels > 0, "yes", "no"),
        **ids,
        **numbers,
        "const": ["a"] * num_rows,
        "v1_again": ids["v1"],
        "seen_at": times.astype(str),
        "note": [f"order {order} from {depot} shipped" for order, depot in zip(orders, depots, strict=True)],
    }
    return split_at_random(pl.DataFrame(columns))


def _generate(config: SyntheticConfig) -> Rows:
    return SyntheticRows(config).read(np.arange(config.num_rows))


def _hash(column: int, ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash ids [n] to 64 bits, in each column otherwise."""
    return random_bits(stream_key(0, column), ids)


def _hash_signed(column: int, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Hash ids [n] to signed integers: of 31 bits in every third column, else of 64."""
    bits = _hash(column, ids)
    return bits.view(np.int64) if column % 3 else (bits >> np.uint64(33)).astype(np.int64) - 2**30


SYNTH_HEX = DataSet("synth_hex", "click", lambda _: make_hexadecimal_log(120_000))
SYNTH_INT = DataSet(
    *("synth_int", "y", lambda _: make_signed_log(100_000)),
    positive="yes",
    kinds=ExpertKinds(
        categorical=tuple(f"v{index}" for index in range(26)),
        ignored=("__index_level_0__", "const", "v1_again", "seen_at", "note"),
    ),
)
SYNTHETIC_SETS = (SYNTH_HEX, SYNTH_INT)
