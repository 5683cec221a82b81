"""Speed and memory of preparing raw rows: `python -m benchmarks.prepare --rows 5000000 20000000`.

Writes synthetic rows as Criteo TSV into a temporary directory, and prepares them with
`python -m dlrm.programs.prepare` on all cores. For comparison, in the same run: the speed of polars when it reads the
first million of the same rows twice, since vocabularies need at least two passes. CPU time is of all threads; on a
shared machine it is the figure to trust.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.arguments import parse_count
from benchmarks.processes import run_program
from dlrm.config import CRITEO_SCHEMA, SyntheticConfig
from dlrm.data.rows import Rows
from dlrm.data.synthetic.log import SyntheticRows
from sharding.counter_random import random_bits, stream_key

READ_ROWS = 1_000_000
"""Number of rows that polars reads for comparison."""
_WRITTEN_ROWS = 1 << 18


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[5_000_000, 20_000_000])
    parser.add_argument("--threads", type=parse_count, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--ids", type=int, default=1_000_000, help="distinct ids of the largest column")
    parser.add_argument("--directory", type=Path, help="directory of all files (default: a temporary directory)")
    arguments = parser.parse_args()
    print("| rows | rows/s | a second of CPU time | polars, two passes | ratio | peak memory, MB |")  # noqa: T201
    print("|---|---|---|---|---|---|")  # noqa: T201
    for num_rows in arguments.rows:
        with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
            rows = Path(directory) / "rows.tsv"
            write_rows(rows, num_rows, arguments.ids)
            plain = measure_polars(rows)
            output = ["--output", str(Path(directory) / "packed"), "--threads", str(arguments.threads)]
            document = json.dumps({"train": [str(rows)]}).encode()
            result, cpu_seconds = run_program(["dlrm.programs.prepare", *output], document)
            rate, memory = result["rows_per_second"], result["peak_memory_bytes"] / 1e6
            line = f"| {num_rows:,} | {rate:,.0f} | {num_rows / cpu_seconds:,.0f} | {plain:,.0f} | {rate / plain:.2f}"
            print(f"{line} | {memory:,.0f} |", flush=True)  # noqa: T201


def write_rows(path: Path, num_rows: int, num_ids: int) -> None:
    """Write synthetic rows as Criteo TSV: empty fields for missing values, ids as eight hexadecimal digits."""
    source = SyntheticRows(SyntheticConfig(num_rows=num_rows, num_ids=num_ids))
    with path.open("wb") as file:
        for start in range(0, num_rows, _WRITTEN_ROWS):
            rows = source.read(np.arange(start, min(start + _WRITTEN_ROWS, num_rows), dtype=np.int64))
            _make_columns(rows).write_csv(file, include_header=False, separator="\t")


def _make_columns(rows: Rows) -> pl.DataFrame:
    columns: dict[str, Any] = {"label": rows.labels.astype(np.int8)}
    for index, column in enumerate(CRITEO_SCHEMA.dense):
        delivered = rows.dense[:, index].astype(np.float64)
        columns[column.name] = pl.Series(np.rint(np.expm1(delivered)).astype(np.int64)).set(
            pl.Series(delivered < 0), None
        )
    for index, column in enumerate(CRITEO_SCHEMA.categorical):
        distinct, codes = np.unique(rows.id_matrix[index], return_inverse=True)
        ids = random_bits(stream_key(0, index), distinct) >> np.uint64(32)
        texts = pl.Series([f"{int(row_id):08x}" for row_id in ids])
        columns[column.name] = texts.gather(codes).set(pl.Series(rows.id_matrix[index] == 0), None)
    return pl.DataFrame(columns)


def measure_polars(path: Path) -> float:
    started = time.perf_counter()
    passes = [len(pl.read_csv(path, has_header=False, separator="\t", n_rows=READ_ROWS)) for _ in range(2)]
    return passes[0] / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
