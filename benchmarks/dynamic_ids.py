"""Ids that come and go against fixed tables of the same memory, on a log of drifting ids.

`python -m benchmarks.dynamic_ids --rows 3_000_000 DIRECTORY`: writes a synthetic log of 30 days, of whose ids every day
a tenth are new and as many have left, and prepares and trains it in one pass with each vocabulary. All tables have the
same number of rows; counted ids are the most frequent ones of the whole log, which no one knows beforehand. Every
finished trial is a line of JSON in DIRECTORY/trials.jsonl, and is not repeated.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from dlrm.data.packed.layout import open_packed_meta
from hostinfo.process_memory import get_tree_memory_bytes

NUM_DAYS, NEW_FRACTION, NUM_FEATURES = 30, 0.1, 4
WINDOW_ROWS = 16_384


def draw_day(day: int, num_rows: int, num_alive: int, seed: int) -> dict[str, NDArray[Any]]:
    """Draw the rows of a day. num_alive: ids of a feature that occur on the day, by a Zipf law of exponent 1."""
    rng = np.random.default_rng((seed, day))
    columns: dict[str, NDArray[Any]] = {}
    logit = np.full(num_rows, -1.5)
    for feature in range(NUM_FEATURES):
        ranks = np.minimum(np.exp(rng.random(num_rows) * np.log(num_alive)).astype(np.int64), num_alive - 1)
        # Of each place in the order of frequency, the id changes every 1 / NEW_FRACTION days, at a day of its own.
        period = round(1 / NEW_FRACTION)
        generation = (day + ranks % period) // period
        ids = ranks + generation * num_alive
        columns[f"id{feature}"] = ids
        # The effect of an id, drawn by its number.
        bits = (ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(feature)) >> np.uint64(40)
        logit += 1.2 * (bits.astype(np.float64) / 2**23 - 1)
    columns["label"] = (rng.random(num_rows) < 1 / (1 + np.exp(-logit))).astype(np.int8)
    return columns


def write_log(directory: Path, num_rows: int, num_alive: int, seed: int = 0) -> None:
    """Write a file a day; the last one holds the evaluation rows."""
    directory.mkdir(parents=True, exist_ok=True)
    for day in range(NUM_DAYS):
        path = directory / f"day_{day:02}.parquet"
        if not path.exists():
            parquet.write_table(pa.table(draw_day(day, num_rows // NUM_DAYS, num_alive, seed)), path)


def make_vocabularies(directory: Path, table_rows: int) -> dict[str, dict[str, Any]]:
    """Return the settings of each vocabulary, of about `table_rows` rows a table."""
    return {
        "dynamic, lru": {"dynamic": {"admit_after": 2, "max_rows": table_rows}},
        "dynamic, lfu": {"dynamic": {"admit_after": 2, "max_rows": table_rows, "evict": "lfu"}},
        "dynamic, 3 days": {"dynamic": {"admit_after": 2, "ttl_rows": 3 * count_rows(directory) // NUM_DAYS}},
        "counted": {"min_count": find_min_count(directory, table_rows)},
        "hashed": {"hash_size": table_rows},
        "counted, all ids": {"min_count": 2},
    }


def count_rows(directory: Path) -> int:
    return sum(parquet.read_metadata(path).num_rows for path in directory.glob("day_*.parquet"))


def find_min_count(directory: Path, table_rows: int) -> int:
    """Find the count that at most `table_rows` ids of the first feature reach in the training rows."""
    files = sorted(directory.glob("day_*.parquet"))[:-1]
    ids = np.concatenate([parquet.read_table(path, columns=["id0"])["id0"].to_numpy() for path in files])
    counts = np.sort(np.unique(ids, return_counts=True)[1])[::-1]
    return int(counts[table_rows]) + 1 if len(counts) > table_rows else 2


def make_job(log: Path, vocabulary: Mapping[str, Any], seed: int) -> dict[str, Any]:
    columns = [{"name": f"id{feature}", "type": "integer"} for feature in range(NUM_FEATURES)]
    days = [str(path) for path in sorted(log.glob("day_*.parquet"))]
    return {
        "data": {
            "train": days[:-1],
            "eval": days[-1:],
            "format": "parquet",
            "order": "time",
            "window_rows": WINDOW_ROWS,
            "schema": {"label": "label", "categorical": columns},
            "vocabulary": vocabulary,
        },
        "model": {"embedding_dim": 16, "bottom_mlp": [16, 16], "top_mlp": [64, 32, 1], "architecture": "dlrm"},
        "batch": {"global_size": 16_384},
        "dense_optimizer": {"learning_rate": 0.003},
        "table_optimizer": {"learning_rate": 0.1},
        "run": {"seed": seed, "yardsticks": "none"},
        "resources": {"workers_per_node": 1},
    }


def measure(job: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Prepare the rows of a job, train on them, and return what came of it; the directory is left empty."""
    document, packed = directory / "job.json", directory / "packed"
    document.write_text(json.dumps(job))
    started = time.perf_counter()
    _, prepare_bytes = run_command("prepare", document, "--output", packed)
    prepare_seconds = time.perf_counter() - started
    meta = open_packed_meta(packed)
    job["data"] = {"format": "packed", "train": [str(packed)], "order": "time", "window_rows": WINDOW_ROWS}
    document.write_text(json.dumps(job))
    answer, train_bytes = run_command("train", document, "--run-directory", directory / "run", "--json")
    outcome = json.loads(answer.splitlines()[-1])
    return {
        "table_rows": [feature.num_ids for feature in meta.features],
        "prepare_rows_per_second": round(meta.splits["train"].num_rows / prepare_seconds),
        **{name: outcome[name] for name in ("auc", "log_loss", "samples_per_second")},
        "prepare_peak_bytes": prepare_bytes,
        "train_peak_bytes": train_bytes,
    }


def run_command(*arguments: Any) -> tuple[str, int]:
    """Run a command; return its output, and the most memory that all its processes had at a time: shared and mapped
    pages count once."""
    command = [sys.executable, "-m", "cli", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak = 0
        while True:
            try:
                output, _ = process.communicate(timeout=0.5)
            except subprocess.TimeoutExpired:
                peak = max(peak, get_tree_memory_bytes(psutil.Process(process.pid)))
                continue
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, command)
            return output, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--alive", type=int, default=100_000, help="ids of a feature that occur on a day")
    parser.add_argument("--table-rows", type=int, default=60_000)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    log = arguments.directory / f"log-{arguments.rows}-{arguments.alive}"
    write_log(log, arguments.rows, arguments.alive)
    results = arguments.directory / "trials.jsonl"
    lines = results.read_text().splitlines() if results.exists() else []
    done = [json.loads(line)["trial"] for line in lines]
    for seed in range(arguments.seeds):
        for name, vocabulary in make_vocabularies(log, arguments.table_rows).items():
            trial = {"vocabulary": name, "seed": seed, "rows": arguments.rows, "bound": arguments.table_rows}
            if trial in done:
                continue
            with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
                found = measure(make_job(log, vocabulary, seed), Path(scratch))
            with results.open("a") as file:
                file.write(json.dumps({"trial": trial, **found}) + "\n")
            sys.stdout.write(f"{json.dumps({'trial': trial, **found})}\n")


if __name__ == "__main__":
    main()
