"""Speed and memory of loading shuffled batches of packed rows, with prefetch, on as many cores as threads read.

`python -m benchmarks.loader`: writes Criteo-shaped rows (13 dense values, 26 ids, a label: 160 bytes) to a temporary
directory, and reads batches of one rank from them. For comparison, in the same run: a plain `take` of as many rows in
the same order from the mapped files, by one thread, which transposes, widens and hands over nothing. Memory is what the
process has while it reads, minus what it had before.
"""

import argparse
import itertools
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.arguments import parse_count
from dlrm.config import SyntheticConfig
from dlrm.data.batches import TrainBatches
from dlrm.data.order import SampleOrder
from dlrm.data.packed.layout import DENSE, IDS, LABELS, FeatureMeta, FileMeta, PackedMeta, SplitMeta
from dlrm.data.packed.rows import PackedRows
from dlrm.data.rows import RowSource
from dlrm.data.synthetic.log import SyntheticRows

GENERATED_ROWS = 1 << 20
"""Number of rows that are generated; a larger data set repeats them."""
BATCH_SIZES = (16_384, 262_144)


@dataclass
class Memory:
    """Largest memory of this process so far, in bytes beyond that at the start."""

    anonymous: int = 0
    mapped: int = 0

    def __post_init__(self) -> None:
        self._before = _read_resident_bytes()

    def measure(self) -> None:
        anonymous, mapped = _read_resident_bytes()
        self.anonymous = max(self.anonymous, anonymous - self._before[0])
        self.mapped = max(self.mapped, mapped - self._before[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[4_000_000, 20_000_000], help="rows of each data set")
    parser.add_argument("--seconds", type=float, default=10.0, help="most seconds for each measurement")
    parser.add_argument(
        "--threads",
        type=parse_count,
        default=1,
        help="threads that read, and cores of this process; several: as for a GPU",
    )
    parser.add_argument("--directory", type=Path, help="directory of the rows (default: a temporary directory)")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])
    print("| rows | batch | samples/s | plain take, rows/s | anonymous MB | mapped MB |\n|---|---|---|---|---|---|")  # noqa: T201
    for num_rows in arguments.rows:
        with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
            meta = write_rows(Path(directory), num_rows)
            for batch_size in BATCH_SIZES:
                take_rate = measure_take(Path(directory), meta, batch_size, arguments.seconds / 2)
                source = PackedRows(Path(directory), "train", meta, arguments.threads)
                is_ahead = arguments.threads > 1
                rate, memory = measure_loader(source, batch_size, arguments.seconds, is_order_ahead=is_ahead)
                figures = f"{memory.anonymous / 1e6:,.0f} | {memory.mapped / 1e6:,.0f}"
                print(f"| {num_rows:,} | {batch_size:,} | {rate:,.0f} | {take_rate:,.0f} | {figures} |", flush=True)  # noqa: T201


def measure_loader(source: RowSource, batch_size: int, seconds: float, *, is_order_ahead: bool) -> tuple[float, Memory]:
    """Measure the samples per second from the request of the first batch on, and the memory."""
    memory = Memory()
    num_samples, started = 0, time.perf_counter()
    with TrainBatches(
        source, batch_size, rank=0, world_size=1, seed=0, num_epochs=1000, is_order_ahead=is_order_ahead
    ) as batches:
        while (elapsed := time.perf_counter() - started) < seconds:
            num_samples += next(batches).num_valid
            memory.measure()
    return num_samples / elapsed, memory


def measure_take(directory: Path, meta: PackedMeta, batch_size: int, seconds: float) -> float:
    """Measure the rows per second of a plain `take` of the same rows in the same order."""
    n = meta.splits["train"].num_rows
    arrays = [
        np.memmap(directory / "train" / name, dtype=dtype, mode="r").reshape(n, -1)
        for name, dtype in ((LABELS, np.float32), (DENSE, np.float32), (IDS, np.int32))
    ]
    order = SampleOrder(n, 0, sum(array[0].nbytes for array in arrays))
    num_rows, spent = 0, 0.0
    for index in itertools.count():
        rows = order.find_rows(index * batch_size, (index + 1) * batch_size).row_numbers
        started = time.perf_counter()
        for array in arrays:
            array.take(rows, axis=0)
        num_rows, spent = num_rows + len(rows), spent + time.perf_counter() - started
        if spent >= seconds:
            return num_rows / spent
    raise AssertionError("the count never ends")


def write_rows(directory: Path, num_rows: int) -> PackedMeta:
    """Write `num_rows` synthetic rows in the packed format, without encoders and evaluation rows."""
    source = SyntheticRows(SyntheticConfig(num_rows=GENERATED_ROWS, num_ids=1_000_000))
    rows = source.read(np.arange(min(GENERATED_ROWS, num_rows), dtype=np.int64))
    arrays = {LABELS: rows.labels, DENSE: rows.dense, IDS: np.ascontiguousarray(rows.id_matrix.T.astype(np.int32))}
    split = directory / "train"
    split.mkdir()
    for name, array in arrays.items():
        with (split / name).open("wb") as file:
            for start in range(0, num_rows, GENERATED_ROWS):
                array[: num_rows - start].tofile(file)
    return PackedMeta(
        dense=[f"I{number}" for number in range(1, rows.dense.shape[1] + 1)],
        features=[FeatureMeta(name=f.name, num_ids=f.num_ids, is_multi_hot=False) for f in source.schema.features],
        id_type="int32",
        has_weights=False,
        splits={"train": SplitMeta(num_rows=num_rows, num_positives=0, mean_weight=1.0, label_rate=0.0)},
        num_bad_rows=0,
        files={f"train/{name}": FileMeta(num_bytes=(split / name).stat().st_size, sha256="") for name in arrays},
        sources=[],
        versions={},
    )


def _read_resident_bytes() -> tuple[int, int]:
    """Return the resident bytes of anonymous memory and of mapped files."""
    found = {"RssAnon": 0, "RssFile": 0}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in found:
            found[name] = int(value.split()[0]) << 10
    return found["RssAnon"], found["RssFile"]


if __name__ == "__main__":
    main()
