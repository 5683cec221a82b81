"""Wall clock to one AUC: each batch of a sweep beside its smallest batch, by number of machines.

Samples to the AUC come from the results of a sweep that compares batches, seconds of a step from the plan of the job
at each batch and number of machines: of this machine's measured speeds, and for several of the network that the job
states or that plans assume. Nothing is trained.
`python -m benchmarks.wall_clock RESULTS JOB --nodes 1 2 8 32 --target-auc 0.78 [--set KEY=VALUE …]`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.processes import run_program


def read_samples(results: Path, target_auc: float | None) -> tuple[float, dict[int, float]]:
    """Read the AUC and the samples that each batch takes to it, as the report of the sweep has them."""
    target = [] if target_auc is None else ["--target-auc", str(target_auc)]
    report, _ = run_program(["service.cli", "report", str(results), "--json", *target])
    scaling = report["scalings"][0]
    samples = {entry["batch"]: entry["samples"] for entry in scaling["batches"] if entry["samples"] is not None}
    return report["target_auc"], samples


def estimate_step_seconds(job: Path, batch: int, num_nodes: int, settings: Sequence[str]) -> float:
    """Estimate the seconds of one step of `batch` samples on `num_nodes` machines, by the job's plan."""
    sizes = [f"batch.global_size={batch}", f"resources.nodes={num_nodes}"]
    arguments = [text for setting in [*settings, *sizes] for text in ("--set", setting)]
    result, _ = run_program(["service.cli", "plan", str(job), "--json", *arguments])
    return result["plan"]["step"]["seconds"]


def format_rows(samples: dict[int, float], seconds: dict[tuple[int, int], float], nodes: Sequence[int]) -> list[str]:
    """Format one line for each batch: samples, steps, and its time over that of the smallest batch on as many machines.

    seconds: of a step, by batch and machines.
    """
    smallest = min(samples)
    lines = [
        "| batch | samples | steps | " + " | ".join(f"{n} nodes" for n in nodes) + " |",
        "|---" * (3 + len(nodes)) + "|",
    ]
    for batch, num_samples in sorted(samples.items()):
        cells: list[str] = []
        for num_nodes in nodes:
            time = num_samples / batch * seconds[batch, num_nodes]
            base = samples[smallest] / smallest * seconds[smallest, num_nodes]
            cells.append(f"{time / base:.2f} ({time:,.1f} s)")
        lines.append(f"| {batch:,} | {num_samples:,.0f} | {num_samples / batch:,.0f} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="directory of the results of a sweep over batch.global_size")
    parser.add_argument("job", type=Path, help="job document whose plans give the seconds of a step")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 8, 32])
    parser.add_argument("--target-auc", type=float, help="default: the highest that every trial reaches")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    target, samples = read_samples(arguments.results, arguments.target_auc)
    seconds = {
        (batch, num_nodes): estimate_step_seconds(arguments.job, batch, num_nodes, arguments.set)
        for batch in samples
        for num_nodes in arguments.nodes
    }
    title = f"To an AUC of {target:.4f}: time over that of the smallest batch, on as many machines"
    sys.stdout.write("\n".join([title, "", *format_rows(samples, seconds, arguments.nodes)]) + "\n")


if __name__ == "__main__":
    main()
