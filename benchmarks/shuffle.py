"""Cost in AUC of shuffling a large log window by window instead of as a whole.

`python -m benchmarks.shuffle JOB.toml`: trains the job on one rank, in this process, three seeds each, with its normal
order and with the blocks and windows of a log many times its size: few blocks per window, many windows. Rows in order
of time are the hard case. Every finished run is a line of JSON in --results, and is not repeated.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from benchmarks.in_process import Results, join_alone, prepare_rows, read_job, train_to_auc
from dlrm.config import ResolvedJob
from dlrm.data import order
from sharding.comm.process_groups import Ranks

SHUFFLES = {
    "as a whole": None,
    "1,024 blocks of 13": (13, 1024),
    "204 blocks of 64": (64, 204),
    "16 blocks of 512": (512, 16),
}
"""Rows per block and blocks per window; None is the normal order. The one with 1,024 blocks is how the order cuts a log
of many windows."""
SEEDS = (0, 1, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=Path, help="a job on raw rows that fit one window, such as examples/flights.toml")
    parser.add_argument("--results", type=Path, default=Path("shuffle.jsonl"))
    arguments = parser.parse_args()
    done = Results(arguments.results, "shuffle", "seed")
    with tempfile.TemporaryDirectory() as scratch, join_alone() as ranks:
        rows = prepare_rows(arguments.job, Path(scratch))
        for shuffle in SHUFFLES:
            for seed in SEEDS:
                if (shuffle, seed) not in done:
                    job = read_job(arguments.job, {"run": {"seed": seed}})
                    done.add((shuffle, seed), _train_to_auc(job, shuffle, rows, Path(scratch), ranks))
    for shuffle in SHUFFLES:
        aucs = [done[shuffle, seed] for seed in SEEDS]
        print(f"{shuffle:<28} {statistics.mean(aucs):.4f}  {[round(auc, 4) for auc in aucs]}")  # noqa: T201


def _train_to_auc(resolved: ResolvedJob, shuffle: str, rows: Path, scratch: Path, ranks: Ranks) -> float:
    """Train once with blocks and windows of the given sizes, which are constants everywhere else; return the AUC."""
    kept = order.BLOCKS_PER_WINDOW, order.MIN_WINDOW_ROWS, order.MAX_WINDOW_ROWS
    sizes = SHUFFLES[shuffle]
    if sizes is not None:
        order.BLOCKS_PER_WINDOW = sizes[1]
        order.MIN_WINDOW_ROWS = order.MAX_WINDOW_ROWS = sizes[0] * sizes[1]
    try:
        return train_to_auc(resolved, rows, scratch, ranks)
    finally:
        order.BLOCKS_PER_WINDOW, order.MIN_WINDOW_ROWS, order.MAX_WINDOW_ROWS = kept


if __name__ == "__main__":
    main()
