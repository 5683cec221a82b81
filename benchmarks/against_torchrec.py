"""Comparison of our training step with TorchRec's own: `python -m benchmarks.against_torchrec`.

Both make the same updates of the same model on the same batches, each in its own processes on all cores. They take
turns, a stretch of steps each, and a ratio compares the two stretches of one round. `like` is fp32 in both, and is
refused where the first losses differ. `best` is bf16 products and an fp16 exchange for ours; TorchRec's uses bf16
autocast, once with an fp32 and once with an fp16 exchange, and the faster one counts. Cells run from the cheapest to
the most expensive until the time is up.

Every finished round is appended to a file of JSON lines next to the table. The same command continues where it was
interrupted, as long as code, versions and machine have not changed. If memory has no room for both at once, they
run one after the other, each restarted for every round.

  python -m benchmarks.against_torchrec --batch 32768 --ranks 2 --ids uniform --bags one --rounds 7
  python -m benchmarks.against_torchrec --device cuda --ids uniform --bags one --comparison best
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import psutil
import torch

from benchmarks.arguments import parse_count
from benchmarks.cells import BAGS, COMPARISONS, IDS, TRANSPORTS, Cell, OurTransport
from benchmarks.comparison_report import format_json, format_markdown, format_trial
from benchmarks.devices import add_device_option
from benchmarks.roofline import measure_rates
from benchmarks.trials import Trial, Trials
from benchmarks.worlds import NUM_WARM, Engine, Stretch, World, WorldError
from sharding.planner.types import Device

RESULTS = Path(__file__).parent / "results" / "against_torchrec.jsonl"
RANKS = {"cpu": [1, 2], "cuda": [1]}
TRANSPORT: dict[Device, list[OurTransport]] = {"cpu": ["memory"], "cuda": ["torchrec"]}
MAX_BYTES_PER_SAMPLE = {"cpu": 30_000, "cuda": 50_000}
"""Most bytes per sample that a step of either engine needs, over all ranks, where bags have one id, by device; see
README.md. On an H100 TorchRec's took 35,000 for tensors; what torch reserves is more."""
MAX_BYTES_PER_ID = 64
"""Most further bytes per id beyond one in a bag: in batches, in the input dist, and sorted for the update."""
BYTES_PER_RANK = 1.0e9
"""Bytes of a rank that do not depend on the batch: libraries, half of the tables, small buffers."""
RESERVED_BYTES = 1e9
"""Bytes of memory left to everything else on the machine."""
LOSS_TOLERANCE = 1e-3
"""Largest difference of the losses of the first steps, in fp32. Beyond it the two computations are not the same, and
their comparison is not valid."""


def main() -> int:
    arguments = _parse_arguments()
    combinations = product(arguments.ranks, arguments.batch, arguments.ids, arguments.bags, arguments.comparison)
    cells = [
        Cell(
            batch,
            ranks,
            ids,
            bags,
            comparison,
            transport=transport,
            device=arguments.device,
            chunk_size=arguments.chunk or "auto",
        )
        for ranks, batch, ids, bags, comparison in combinations
        for transport in arguments.transport
    ]
    cells.sort(key=lambda cell: cell.batch_size * cell.ids_per_bag)
    for cell in cells:
        if fault := cell.shape.find_fault():
            print(fault, file=sys.stderr)  # noqa: T201
            return 2
    deadline = time.monotonic() + 60 * arguments.minutes
    trials = Trials(arguments.results)
    for cell in cells:
        for trial in measure_cell(cell, trials.get_trials(cell), arguments.rounds, arguments.seconds):
            trials.add(trial)
            print(format_trial(trial), file=sys.stderr, flush=True)  # noqa: T201
            _write_reports(trials, cells, arguments)
            if time.monotonic() >= deadline:
                break
        if time.monotonic() >= deadline:
            break
    print(_write_reports(trials, cells, arguments))  # noqa: T201
    return 0


def measure_cell(cell: Cell, before: list[Trial], num_rounds: int, seconds: float) -> Iterator[Trial]:
    """Make the rounds that are still missing after those in `before`, and yield each.

    A round that fails is the last one; a later run of the program repeats it. num_rounds: rounds of the cell in all.
    seconds: least duration of a stretch.
    """
    engines = list_engines(cell)
    num_made = sum(bool(trial.stretches) for trial in before)
    num_that_fit = _count_fitting_worlds(cell)
    with ExitStack() as stack:
        stay = stack if num_that_fit >= len(engines) else None
        worlds: dict[Engine, World] = {}
        for number in range(num_made, num_rounds):
            if num_that_fit == 0:
                yield Trial(cell, number, failure=f"needs {_estimate_bytes(cell) / 1e9:.0f} GB of free memory")
                return
            rates = measure_rates(len(os.sched_getaffinity(0)), torch.device(cell.device))
            # The engines take turns in going first.
            first = number % len(engines)
            turns = engines[first:] + engines[:first]
            try:
                results = {engine: _measure_stretch(cell, engine, worlds, stay, seconds) for engine in turns}
            except WorldError as error:
                yield Trial(cell, number, failure=str(error))
                return
            failure = _compare_losses([losses for _, losses in results.values()])
            if failure and cell.comparison == "like":
                yield Trial(cell, number, failure=failure)
                return
            yield Trial(cell, number, {engine: stretch for engine, (stretch, _) in results.items()}, rates)


def _measure_stretch(
    cell: Cell, engine: Engine, worlds: dict[Engine, World], stay: ExitStack | None, seconds: float
) -> tuple[Stretch, list[float]]:
    """Make the next stretch of an engine; return it and the losses of the engine's first NUM_WARM steps.

    worlds: worlds that are running, by engine. stay: stack that ends them, if memory has room for all at once; None if
    the world runs for this stretch only. seconds: least duration of the stretch.
    """
    with ExitStack() as alone:
        if engine not in worlds:
            worlds[engine] = (stay or alone).enter_context(World(cell, engine))
        world = worlds[engine] if stay else worlds.pop(engine)
        return world.measure_stretch(max(1, math.ceil(seconds / world.pace_seconds))), world.losses[:NUM_WARM]


def _compare_losses(losses: list[list[float]]) -> str:
    """Return a message where losses of the same steps differ by more than LOSS_TOLERANCE; empty if they do not."""
    largest = max(max(several) - min(several) for several in zip(*losses, strict=True))
    return f"the losses of the first steps differ by {largest:.1e}: {losses}" if largest > LOSS_TOLERANCE else ""


def list_engines(cell: Cell) -> list[Engine]:
    """List the engines to compare; one rank exchanges nothing, so that it needs no engine with an fp16 exchange."""
    has_fp16_wire = cell.comparison == "best" and cell.world_size > 1
    return ["ours", "torchrec", "torchrec_fp16_wire"] if has_fp16_wire else ["ours", "torchrec"]


def _count_fitting_worlds(cell: Cell) -> int:
    available, needed = psutil.virtual_memory().available, _estimate_bytes(cell)
    if cell.device == "cuda":
        available, needed = torch.cuda.mem_get_info()[0], needed / cell.world_size
    return int((available - RESERVED_BYTES) // needed)


def _estimate_bytes(cell: Cell) -> float:
    """Estimate the bytes of memory that all ranks of one engine need together."""
    more_ids = cell.num_tables * (cell.ids_per_bag - 1)
    return cell.world_size * BYTES_PER_RANK + cell.batch_size * (
        MAX_BYTES_PER_SAMPLE[cell.device] + MAX_BYTES_PER_ID * more_ids
    )


def _write_reports(trials: Trials, cells: list[Cell], arguments: argparse.Namespace) -> str:
    """Write the Markdown and JSON files of all trials so far, with the cells still missing; return the Markdown."""
    path: Path = arguments.results
    command = " ".join(["python -m benchmarks.against_torchrec", *sys.argv[1:]])
    table = format_markdown(trials, cells, command)
    path.with_suffix(".md").write_text(table + "\n")
    path.with_suffix(".json").write_text(format_json(trials, cells, command) + "\n")
    return table


def _parse_arguments() -> argparse.Namespace:
    arguments = _make_parser().parse_args()
    arguments.ranks = arguments.ranks or RANKS[arguments.device]
    arguments.transport = arguments.transport or TRANSPORT[arguments.device]
    return arguments


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add_device_option(parser)
    add(
        "--batch",
        type=parse_count,
        nargs="+",
        default=[2048, 32_768, 131_072, 524_288],
        help="samples of a step, over all ranks (default: %(default)s)",
    )
    add(
        "--ranks",
        type=parse_count,
        nargs="+",
        help="numbers of processes, which share the cores (default: 1 2; on GPUs 1)",
    )
    add("--ids", choices=IDS, nargs="+", default=IDS, help="zipf: the k-th id in proportion to 1 / k (default: both)")
    add("--bags", choices=BAGS, nargs="+", default=BAGS, help="ids per feature: one, or 1 to 9 (default: both)")
    add("--comparison", choices=COMPARISONS, nargs="+", default=COMPARISONS, help="see above (default: both)")
    add("--transport", choices=TRANSPORTS, nargs="+", help="of our tables (default: memory; on GPUs torchrec)")
    add("--chunk", type=parse_count, help="samples of a chunk of our step (default: the product's choice)")
    add("--rounds", type=int, default=3, help="rounds per cell, each a stretch of every engine (default: %(default)s)")
    add(
        "--seconds",
        type=float,
        default=3.0,
        help="least length of a stretch, which has at least one step (default: %(default)s)",
    )
    add(
        "--minutes",
        type=float,
        default=120.0,
        help="start no further round after so many minutes (default: %(default)s)",
    )
    add("--results", type=Path, default=RESULTS, help="file of the rounds, .jsonl; tables are written next to it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
