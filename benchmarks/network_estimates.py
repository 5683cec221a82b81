"""The estimated step of a plan beside the measured one, in networks of given bandwidth and latency.

Runs a job on two machines of one rank each (namespaces of this machine, `shaped_network`), for each link, exchange
dtype and batch, and prints a line for each run: the step that its plan expects, the median of its steps, and both by
part. Needs root. `python -m benchmarks.network_estimates`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.processes import find_free_port
from benchmarks.shaped_network import Link, ShapedMachine, shaped_machines
from dlrm.config import JobConfig, resolve
from dlrm.record import PLAN, STEP_PARTS, EventReport, RunDirectory, SpoolReader, StepReport, parse_report

LINKS = [Link(1, 0.2), Link(1, 5), Link(10, 0.2), Link(10, 5)]
NUM_WARM_STEPS = 3
"""Steps at the start that are not counted: memory is allocated, and connections find their speed."""
LIMIT_SECONDS = 600


@dataclass(frozen=True)
class Comparison:
    """One run: what its plan expected, and what it took."""

    link: str
    batch: int
    exchange_dtype: str
    num_steps: int
    expected_seconds: float
    measured_seconds: float
    """Median of a step."""
    expected_parts: dict[str, float]
    measured_parts: dict[str, float]
    """Seconds by part, the mean of all steps."""

    @property
    def ratio(self) -> float:
        return self.expected_seconds / self.measured_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[32_768])
    parser.add_argument("--exchange-dtype", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--embedding-dim", type=int, default=64)
    parser.add_argument("--links", type=int, nargs="+", default=range(len(LINKS)), help="numbers of links, from 0")
    parser.add_argument("--results", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    found: list[Comparison] = []
    _print("| link | batch | exchange | expected, s | measured, s | ratio |\n|---|---|---|---|---|---|")
    for link in (LINKS[number] for number in arguments.links):
        for batch in arguments.batch:
            for dtype in arguments.exchange_dtype:
                with shaped_machines(2, link) as machines, tempfile.TemporaryDirectory() as name:
                    job = make_job(link, batch, dtype, arguments.steps, arguments.embedding_dim)
                    run = compare(RunDirectory(Path(name)), job, machines, link)
                found.append(run)
                figures = f"{run.expected_seconds:.3f} | {run.measured_seconds:.3f} | {run.ratio:.2f}"
                _print(f"| {run.link} | {run.batch:,} | {run.exchange_dtype} | {figures} |")
    if arguments.results:
        arguments.results.write_text(json.dumps([asdict(run) for run in found], indent=1) + "\n")


def make_job(link: Link, batch: int, dtype: str, num_steps: int, embedding_dim: int) -> JobConfig:
    return JobConfig.model_validate(
        {
            "data": {"format": "synthetic", "synthetic": {"num_rows": batch * (num_steps + 1), "num_ids": 100_000}},
            "model": {"embedding_dim": embedding_dim},
            "batch": {"global_size": batch},
            "run": {"epochs": 1, "eval_every_fraction": 1.0, "yardsticks": "none", "blend": "none"},
            "resources": {"nodes": 2, "workers_per_node": 1, "threads_per_worker": 1, "memory": "10GiB"},
            "sharding": {
                "exchange_dtype": dtype,
                "transport": "network",
                "topology": {"inter_node_bandwidth": link.bytes_per_second},
            },
        }
    )


def compare(directory: RunDirectory, job: JobConfig, machines: list[ShapedMachine], link: Link) -> Comparison:
    """Run a job on two machines, and compare the step of its plan with those that it made."""
    directory.spec.write_text(resolve(job).model_dump_json())
    address = f"{machines[0].address}:{find_free_port()}"
    command = [sys.executable, "-m", "dlrm.launch", str(directory.path), "--attempt", "1", "--rendezvous", address]
    with (directory.path / "output").open("wb") as output:
        nodes = [
            subprocess.Popen([*machine.prefix, *command, "--node-rank", str(node)], stdout=output, stderr=output)
            for node, machine in enumerate(machines)
        ]
        codes = [node.wait(timeout=LIMIT_SECONDS) for node in nodes]
    assert codes == [0, 0], (directory.path / "output").read_text()[-4000:]
    attempt = directory.attempt(1)
    metrics = map(parse_report, SpoolReader(attempt.spool_file(0, "metrics")).read())
    steps = [report for report in metrics if isinstance(report, StepReport)][NUM_WARM_STEPS:]
    # Without the last batch, which may be short.
    seconds = [job.batch.global_size / report.samples_per_second for report in steps[:-1]]
    events = map(parse_report, SpoolReader(attempt.spool_file(0, "events")).read())
    details = {report.name: report.details for report in events if isinstance(report, EventReport)}
    expected = details[PLAN]["step_seconds"]
    return Comparison(
        link=link.name,
        batch=job.batch.global_size,
        exchange_dtype=job.sharding.exchange_dtype,
        num_steps=len(seconds),
        expected_seconds=sum(expected.values()),
        measured_seconds=statistics.median(seconds),
        expected_parts=expected,
        measured_parts=details[STEP_PARTS]["seconds"],
    )


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("network namespaces need root")
    main()
