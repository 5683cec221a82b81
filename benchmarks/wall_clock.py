"""Wall clock to one AUC: each batch of a sweep beside its smallest batch, by number of machines.

Samples to the AUC come from the results of a sweep over batches, seconds of a step from the plan of the job at each
batch and number of machines: of this machine's measured speeds, and for several of the network that the job states or
that plans assume. A batch that grows takes its stages one after another, by the document RESULTS/sweep.toml of its
sweep; each stage has the plan of its own batch, while a run has one plan for all, so that the small ones are estimated
a little too fast. Nothing is trained.
`python -m benchmarks.wall_clock RESULTS… JOB --nodes 1 2 8 32 --target-auc 0.78 [--methods NAME …]
[--set KEY=VALUE …]`.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.processes import run_program
from cli.experiments.sweep.document import read_sweep
from cli.experiments.sweep.trial import make_trial
from cli.local.errors import BadInputError
from dlrm.config import BatchConfig, ConfigError, resolve


@dataclass(frozen=True)
class Run:
    """Way of one method to the AUC."""

    method: str
    samples: Mapping[int, float]
    """Samples by batch size, in the order of the stages; of a batch that does not grow one entry."""

    @property
    def batch(self) -> int:
        """Batch at the AUC."""
        return max(self.samples)

    @property
    def num_samples(self) -> float:
        """Samples to the AUC."""
        return sum(self.samples.values())

    @property
    def num_steps(self) -> float:
        """Steps to the AUC."""
        return sum(samples / size for size, samples in self.samples.items())

    def compute_seconds(self, step_seconds: Mapping[int, float]) -> float:
        """Compute the time to the AUC from the seconds of a step by batch."""
        return sum(samples / size * step_seconds[size] for size, samples in self.samples.items())


def list_runs(report: Mapping[str, Any], sweeps: Sequence[Path], methods: Sequence[str]) -> list[Run]:
    """List what a report (`dlrm report --json`) says of the samples to its target, the smallest batch first.

    Of several runs with the smallest batch the one with the fewest samples is first. Runs that do not reach the target
    are left out. sweeps: documents of the sweeps, read where a batch grows. methods: the methods that count, with
    compared values other than the batch; empty for all. Raises ValueError if none is left, and BadInputError if no
    document says how a batch grows.
    """
    entries = [(scaling["series"], entry) for scaling in report["scalings"] for entry in scaling["batches"]]
    entries += [(entry["series"], entry) for entry in report["growing"]]
    reaching = [(series, entry) for series, entry in entries if entry["samples"] is not None]
    chosen = [(series, entry) for series, entry in reaching if not methods or series in methods]
    if not chosen:
        names = ", ".join(dict.fromkeys(series for series, _ in reaching)) or "none"
        raise ValueError(f"no such method reaches the target with all its seeds (methods that do: {names})")
    runs = [Run(series, _split_samples(entry, sweeps)) for series, entry in chosen]
    return sorted(runs, key=lambda run: (run.batch, len(run.samples), run.num_samples))


def _split_samples(entry: Mapping[str, Any], sweeps: Sequence[Path]) -> dict[int, float]:
    if "batch" in entry:
        return {entry["batch"]: entry["samples"]}
    return split_by_stages(read_batch(sweeps, entry), entry["num_samples"], entry["samples"])


def read_batch(sweeps: Sequence[Path], entry: Mapping[str, Any]) -> BatchConfig:
    """Read from the documents of sweeps how the batch of one of their results grows.

    Raises BadInputError if no document has its method with a batch that grows by shares of the samples.
    """
    for sweep in map(read_sweep, sweeps):
        if entry["method"] in sweep.config.methods:
            seed, settings = sweep.config.seeds[0], entry["settings"] or {}
            spec = make_trial(sweep, "grid", entry["method"], entry["compared"], settings, seed).spec
            if spec.batch.global_size != "auto" and spec.batch.schedule:
                return resolve(spec).job.batch
    names = ", ".join(map(str, sweeps))
    raise BadInputError(
        f"{names}: methods: no document says when the batch of {entry['method']} grows (valid: batch.global_size with "
        "batch.schedule)"
    )


def split_by_stages(batch: BatchConfig, run_samples: float, num_samples: float) -> dict[int, float]:
    """Split the first `num_samples` of a run of `run_samples` by the batch that they are trained with."""
    ends = [*(stage.until_fraction * run_samples for stage in batch.schedule), run_samples]
    sizes = [size for _, size in batch.list_sizes()]
    begins = [0.0, *ends[:-1]]
    return {
        size: min(end, num_samples) - begin
        for size, begin, end in zip(sizes, begins, ends, strict=True)
        if begin < num_samples
    }


def estimate_step_seconds(job: Path, batch: int, num_nodes: int, settings: Sequence[str]) -> float:
    """Estimate the seconds of one step of `batch` samples on `num_nodes` machines, by the job's plan."""
    sizes = [f"batch.global_size={batch}", "batch.schedule=[]", "batch.growth=false", f"resources.nodes={num_nodes}"]
    arguments = [text for setting in [*settings, *sizes] for text in ("--set", setting)]
    result, _ = run_program(["cli", "plan", str(job), "--json", *arguments])
    return result["plan"]["step"]["seconds"]


def format_rows(runs: Sequence[Run], seconds: Mapping[int, Mapping[int, float]]) -> list[str]:
    """Format one line for each run: samples, steps, and its time over the first run's on as many machines.

    seconds: of a step, by number of machines and batch.
    """
    machines = " | ".join(f"{count} {'machine' if count == 1 else 'machines'}" for count in seconds)
    lines = [f"| method | batch | samples | steps | {machines} |", "|---" * (4 + len(seconds)) + "|"]
    for run in runs:
        cells: list[str] = []
        for step_seconds in seconds.values():
            time = run.compute_seconds(step_seconds)
            cells.append(f"{time / runs[0].compute_seconds(step_seconds):.2f} ({time:,.1f} s)")
        first = f"{min(run.samples):,} to " if len(run.samples) > 1 else ""
        counts = f"{first}{run.batch:,} | {run.num_samples:,.0f} | {run.num_steps:,.0f}"
        lines.append(f"| {run.method} | {counts} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="directories of the results of sweeps")
    parser.add_argument("job", type=Path, help="job document whose plans give the seconds of a step")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 8, 32])
    parser.add_argument("--target-auc", type=float, help="default: the highest that every trial reaches")
    parser.add_argument("--methods", nargs="+", default=[], help="default: all that reach the AUC")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    target = [] if arguments.target_auc is None else ["--target-auc", str(arguments.target_auc)]
    report, _ = run_program(["cli", "report", *map(str, arguments.results), "--json", *target])
    sweeps = [directory / "sweep.toml" for directory in arguments.results]
    try:
        runs = list_runs(report, sweeps, arguments.methods)
    except (ValueError, BadInputError, ConfigError) as error:
        parser.error(str(error))
    batches = sorted({batch for run in runs for batch in run.samples})
    seconds = {
        num_nodes: {batch: estimate_step_seconds(arguments.job, batch, num_nodes, arguments.set) for batch in batches}
        for num_nodes in arguments.nodes
    }
    title = f"To an AUC of {report['target_auc']:.4f}: time over that of the smallest batch, on as many machines"
    sys.stdout.write("\n".join([title, "", *format_rows(runs, seconds)]) + "\n")


if __name__ == "__main__":
    main()
