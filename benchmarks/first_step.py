"""Seconds from the submission of a small job to its first training step: `python -m benchmarks.first_step`.

Starts a real service and submits small jobs one after the other, each with a file of its own, so that its rows are
prepared too. The times come from the events of the service and the reports of rank 0. A row of the table is a stage:

queued       from the submission to the decision to start it
process      to the launch process
interpreter  to the first report of the preparation: Python, the document, the start of the preparation
preparation  to the end of the preparation
ranks        to the first report of rank 0 in training: the rest of its imports, ranks find each other
building     to the start of training: rows, plan, model, tables
step         to the end of the first step
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from cli.demo.service_process import run_service
from dlrm.record import RunDirectory
from service.client import Client, JobDetails

NUM_ROWS = 20_000
STAGES = ("queued", "process", "interpreter", "preparation", "ranks", "building", "step")
POLL_SECONDS = 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=7, help="number of jobs (default: 7)")
    parser.add_argument("--workers", type=int, default=1, help="ranks of a job (default: 1)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with run_service(directory / "state", {"DLRM_DATA_ROOTS": name}) as client:
            runs = [measure(client, directory, number, arguments.workers) for number in range(arguments.jobs)]
    lines = [f"{stage:12} {statistics.median(run[stage] for run in runs):6.2f}" for stage in (*STAGES, "total")]
    print("\n".join([f"median seconds of {len(runs)} jobs", *lines]))  # noqa: T201


def measure(client: Client, directory: Path, number: int, num_workers: int) -> dict[str, float]:
    """Run one job, and return the seconds of its stages and of all of them."""
    write_rows(directory / f"rows-{number}.tsv", number)
    job = client.submit(
        {
            "data": {"train": [f"rows-{number}.tsv"]},
            "batch": {"global_size": 1024},
            "model": {"embedding_dim": 16},
            "resources": {"workers_per_node": num_workers, "threads_per_worker": 1, "memory": "4GiB"},
        }
    )
    while not (ended := client.job(job.id)).has_ended:
        time.sleep(POLL_SECONDS)
    assert ended.state == "SUCCEEDED", ended.message
    times = list_times(client, ended)
    stages = {stage: end - start for stage, start, end in zip(STAGES, times, times[1:], strict=False)}
    return stages | {"total": times[-1] - times[0]}


def list_times(client: Client, job: JobDetails) -> list[float]:
    """List the times between which the stages lie."""
    scheduled = next(event for event in client.events(job.id) if event.to_state == "STARTING")
    (attempt,) = client.attempts(job.id)
    assert job.run_directory is not None, "the job has run"
    assert attempt.started_at is not None, "the job has run"
    spool = RunDirectory(Path(job.run_directory)).attempt(1)
    events, metrics = (_read_lines(spool.spool_file(0, stream)) for stream in ("events", "metrics"))
    preparing = [
        line["time"] for line in events if line.get("phase") == "preparing" or line.get("name") == "data_prepared"
    ]
    loading = next(line["time"] for line in events if line.get("phase") == "loading")
    start = next(line["time"] for line in metrics if line["kind"] == "start")
    step = next(line["time"] for line in metrics if line["kind"] == "step")
    return [
        job.created_at.timestamp(),
        scheduled.time.timestamp(),
        attempt.started_at.timestamp(),
        preparing[0],
        preparing[-1],
        loading,
        start,
        step,
    ]


def write_rows(path: Path, number: int) -> None:
    """Write rows in Criteo's format that no other job has."""
    lines = (
        "\t".join(
            [str(int(row % 4 == 0)), *(str((row * step + number) % 50) for step in range(1, 14))]
            + [f"{(row * step + number) % 997:08x}" for step in range(14, 40)]
        )
        for row in range(NUM_ROWS)
    )
    path.write_text("\n".join(lines) + "\n")


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    main()
