"""Wall clock to one AUC: each batch of a sweep beside its smallest batch, by number of machines.

Samples to the AUC come from the results of a sweep over batches, seconds of a step from the plan of the job at each
batch and number of machines: of this machine's measured speeds, and for several of the network that the job states or
that plans assume. Nothing is trained.
`python -m benchmarks.wall_clock RESULTS JOB --nodes 1 2 8 32 --target-auc 0.78 [--methods NAME …] [--set KEY=VALUE …]`.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.processes import run_program

Runs = dict[tuple[str, int], float]
"""Samples to the AUC, by method and batch."""


def list_runs(report: Mapping[str, Any], methods: Sequence[str]) -> Runs:
    """List what a report (`dlrm report --json`) says of the samples to its target.

    Runs that do not reach it are left out. methods: those that count; empty for all. Raises ValueError where none is
    left.
    """
    runs = {
        (scaling["series"], entry["batch"]): float(entry["samples"])
        for scaling in report["scalings"]
        for entry in scaling["batches"]
        if entry["samples"] is not None and (not methods or scaling["series"] in methods)
    }
    if not runs:
        names = ", ".join(scaling["series"] for scaling in report["scalings"]) or "none"
        raise ValueError(f"no method reaches the target with all its seeds (methods in the results: {names})")
    return runs


def estimate_step_seconds(job: Path, batch: int, num_nodes: int, settings: Sequence[str]) -> float:
    """Estimate the seconds of one step of `batch` samples on `num_nodes` machines, by the job's plan."""
    sizes = [f"batch.global_size={batch}", f"resources.nodes={num_nodes}"]
    arguments = [text for setting in [*settings, *sizes] for text in ("--set", setting)]
    result, _ = run_program(["service.cli", "plan", str(job), "--json", *arguments])
    return result["plan"]["step"]["seconds"]


def format_rows(runs: Runs, seconds: dict[tuple[int, int], float], nodes: Sequence[int]) -> list[str]:
    """Format one line for each run: samples, steps, and its time over that of the smallest batch on as many machines.

    seconds: of a step, by batch and machines. Of several methods with the smallest batch, the one with the fewest
    samples to the AUC is what the others are measured by.
    """
    ordered = sorted(runs.items(), key=lambda run: (run[0][1], run[1]))
    (_, base_batch), base_samples = ordered[0]
    machines = " | ".join(f"{count} {'machine' if count == 1 else 'machines'}" for count in nodes)
    lines = [f"| method | batch | samples | steps | {machines} |", "|---" * (4 + len(nodes)) + "|"]
    for (method, batch), num_samples in ordered:
        cells: list[str] = []
        for num_nodes in nodes:
            time = num_samples / batch * seconds[batch, num_nodes]
            base = base_samples / base_batch * seconds[base_batch, num_nodes]
            cells.append(f"{time / base:.2f} ({time:,.1f} s)")
        counts = f"{batch:,} | {num_samples:,.0f} | {num_samples / batch:,.0f}"
        lines.append(f"| {method} | {counts} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="directory of the results of a sweep over batch.global_size")
    parser.add_argument("job", type=Path, help="job document whose plans give the seconds of a step")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 8, 32])
    parser.add_argument("--target-auc", type=float, help="default: the highest that every trial reaches")
    parser.add_argument("--methods", nargs="+", default=[], help="default: all that reach the AUC")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    target = [] if arguments.target_auc is None else ["--target-auc", str(arguments.target_auc)]
    report, _ = run_program(["service.cli", "report", str(arguments.results), "--json", *target])
    try:
        runs = list_runs(report, arguments.methods)
    except ValueError as error:
        parser.error(str(error))
    seconds = {
        (batch, num_nodes): estimate_step_seconds(arguments.job, batch, num_nodes, arguments.set)
        for batch in sorted({batch for _, batch in runs})
        for num_nodes in arguments.nodes
    }
    title = f"To an AUC of {report['target_auc']:.4f}: time over that of the smallest batch, on as many machines"
    sys.stdout.write("\n".join([title, "", *format_rows(runs, seconds, arguments.nodes)]) + "\n")


if __name__ == "__main__":
    main()
