"""Speed of making synthetic rows, labels and teacher included: `python -m benchmarks.synthetic_rows`.

Recorded on a machine of two cores with other users, so that CPU time is the figure to trust:

| rows | largest table | rows/s | rows per second of CPU time | processor | versions |
|---|---|---|---|---|---|
| 1,000,000 | 10,000 | 929,728 | 1,853,688 | AMD EPYC (family 26, AVX-512) | Python 3.11.7, numpy 2.4.6, Linux |
| 1,000,000 | 10,000 | 383,328 | 1,149,237 | the same, both cores busy with other work | the same |
"""

import argparse
import platform
import time
from pathlib import Path

import numpy as np

from benchmarks.arguments import parse_count
from dlrm.config import SyntheticConfig
from dlrm.data.synthetic.log import SyntheticRows

READ_ROWS = 16_384
"""Rows of one read, which stands for a batch."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=parse_count, default=1_000_000, help="rows to make")
    parser.add_argument("--num-ids", type=parse_count, default=10_000, help="ids of the largest feature")
    parser.add_argument("--threads", type=parse_count, default=1, help="threads that make the rows of a read")
    arguments = parser.parse_args()
    config = SyntheticConfig(num_rows=max(arguments.rows, 10), num_ids=arguments.num_ids)
    source = SyntheticRows(config, arguments.threads)
    source.read(np.arange(READ_ROWS, dtype=np.int64))
    started, cpu_started = time.perf_counter(), time.process_time()
    for start in range(0, arguments.rows, READ_ROWS):
        source.read(np.arange(start, min(start + READ_ROWS, arguments.rows), dtype=np.int64))
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    lines = [
        f"{arguments.rows:,} rows in reads of {READ_ROWS:,} by {arguments.threads} threads, largest table"
        f" {arguments.num_ids:,} ids",
        f"{arguments.rows / seconds:,.0f} rows/s ({arguments.rows / cpu_seconds:,.0f} a second of CPU time)",
        f"{_read_processor_name()}; Python {platform.python_version()}, numpy {np.__version__}, {platform.system()}",
    ]
    print("\n".join(lines))  # noqa: T201


def _read_processor_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
