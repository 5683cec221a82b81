"""What it costs in AUC that the order of a large log is shuffled window by window, and not as a whole.

`python -m benchmarks.shuffle JOB.toml`: trains the job on one rank, in this process, three seeds each, with the order
it would have and with the blocks and windows of a log many times its size: few blocks a window, many windows. Rows that
lie in order of time are the hard case. Every finished run is a line of JSON in --results, and is not run again.
"""

import argparse
import json
import os
import statistics
import tempfile
import tomllib
from pathlib import Path

from benchmarks.processes import free_port
from dlrm.config import ResolvedJob, parse_job, resolve
from dlrm.data import order
from dlrm.data.prepare.cache import prepared
from dlrm.data.prepare.told import Moved, Noted
from dlrm.record import PreparedData, RunDirectory
from dlrm.reporting.reporter import Reporter
from dlrm.run import run
from dlrm.stop import StopRequest
from sharding.ranks import Ranks, joined_ranks

SHUFFLES = {
    "as a whole": None,
    "1,024 blocks of 13": (13, 1024),
    "204 blocks of 64": (64, 204),
    "16 blocks of 512": (512, 16),
}
"""Rows of a block, blocks of a window; the second is how the order cuts a log of many windows."""
SEEDS = (0, 1, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=Path, help="a job on raw rows that fit one window, such as examples/flights.toml")
    parser.add_argument("--results", type=Path, default=Path("shuffle.jsonl"))
    arguments = parser.parse_args()
    lines = arguments.results.read_text().splitlines() if arguments.results.exists() else []
    done = {(found["shuffle"], found["seed"]): found["auc"] for found in map(json.loads, lines)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "RANK": "0", "WORLD_SIZE": "1"}
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as scratch, joined_ranks() as ranks:
        directory = _prepared(arguments.job, Path(scratch))
        for shuffle in SHUFFLES:
            for seed in SEEDS:
                if (shuffle, seed) not in done:
                    auc = _auc(_job(arguments.job, seed), shuffle, directory, Path(scratch), ranks)
                    done[shuffle, seed] = auc
                    with arguments.results.open("a") as file:
                        file.write(json.dumps({"shuffle": shuffle, "seed": seed, "auc": auc}) + "\n")
    for shuffle in SHUFFLES:
        aucs = [done[shuffle, seed] for seed in SEEDS]
        print(f"{shuffle:<28} {statistics.mean(aucs):.4f}  {[round(auc, 4) for auc in aucs]}")  # noqa: T201


def _job(path: Path, seed: int) -> ResolvedJob:
    document = tomllib.loads(path.read_text())
    document.setdefault("run", {})["seed"] = seed
    document.setdefault("resources", {})["workers_per_node"] = 1
    return resolve(parse_job(document))


def _prepared(path: Path, scratch: Path) -> Path:
    def ignore(_: Moved | Noted) -> None:
        pass

    config = _job(path, 0).job.data
    return prepared(config, None, scratch, base_directory=path.resolve().parent, num_threads=2, tell=ignore)


def _auc(resolved: ResolvedJob, shuffle: str, data: Path, scratch: Path, ranks: Ranks) -> float:
    """Train once with blocks and windows of these sizes; they are constants of the order everywhere else."""
    directory = RunDirectory(Path(tempfile.mkdtemp(dir=scratch)))
    directory.attempt(1).create()
    PreparedData(directory=str(data), checksum="").write(directory.data)
    kept = order.BLOCKS_PER_WINDOW, order.MIN_WINDOW_ROWS, order.MAX_WINDOW_ROWS
    sizes = SHUFFLES[shuffle]
    if sizes is not None:
        order.BLOCKS_PER_WINDOW = sizes[1]
        order.MIN_WINDOW_ROWS = order.MAX_WINDOW_ROWS = sizes[0] * sizes[1]
    try:
        outcome = run(resolved, directory, ranks, Reporter(directory.attempt(1), 0), StopRequest())
    finally:
        order.BLOCKS_PER_WINDOW, order.MIN_WINDOW_ROWS, order.MAX_WINDOW_ROWS = kept
    auc = outcome.metrics["auc"]
    assert auc is not None, "the evaluation rows have both labels"
    return auc


if __name__ == "__main__":
    main()
