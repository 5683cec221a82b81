"""Report on the trials of a comparison, cell by cell, as Markdown tables and as JSON."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from benchmarks.cells import BAGS, COMPARISONS, Cell
from benchmarks.roofline import Rates, compute_least_seconds
from benchmarks.trials import Trial, Trials

CELL_HEAD = ["compared", "W", "B", "ids", "bags", "transport"]
HEAD = [
    *CELL_HEAD,
    *["rounds", "ours, samples/s", "TorchRec's", "ratio", "its least", "its largest", "ratio in CPU time"],
    *["GB a rank, ours", "TorchRec's", "of the roofline, ours", "TorchRec's"],
]
PARTS_HEAD = [*CELL_HEAD, "part", "s a step", "at least, s", "of the roofline"]


@dataclass(frozen=True)
class Summary:
    """Summary of the rounds of one cell: medians, unless stated otherwise."""

    cell: Cell
    num_rounds: int
    samples_per_second: dict[str, float]
    """Samples per second, by engine."""
    yardstick: str
    """Faster one of TorchRec's engines."""
    ratio: float
    """Our samples per second over the yardstick's in the same round."""
    least_ratio: float
    largest_ratio: float
    cpu_ratio: float
    """Ratio like `ratio`, but of samples per second of CPU time."""
    peak_memory_bytes: dict[str, int]
    """Peak bytes, by engine, of the rank that took most in all rounds; a rank counts its share of shared memory."""
    peak_mapped_bytes: dict[str, int]
    """Peak bytes as in `peak_memory_bytes`, where each rank counts shared memory in full."""
    part_seconds: dict[str, float]
    """Seconds of our step, by part."""
    least_seconds: dict[str, float]
    """Least seconds of any step, by part, at the best rates that the machine showed in all trials."""
    roofline_fraction: dict[str, float]
    """Least seconds divided by measured seconds of the whole step, by engine."""


def summarise(cell: Cell, rounds: Sequence[Trial], rates: Rates) -> Summary:
    engines = list(rounds[0].stretches)
    of = {engine: [trial.stretches[engine] for trial in rounds] for engine in engines}
    seconds = {engine: statistics.median(one.step_seconds for one in stretches) for engine, stretches in of.items()}
    yardstick = min((engine for engine in engines if engine != "ours"), key=seconds.__getitem__)
    ratios = [theirs.step_seconds / ours.step_seconds for ours, theirs in zip(of["ours"], of[yardstick], strict=True)]
    least = compute_least_seconds(cell, rates)
    return Summary(
        cell=cell,
        num_rounds=len(rounds),
        samples_per_second={engine: cell.batch_size / step for engine, step in seconds.items()},
        yardstick=yardstick,
        ratio=statistics.median(ratios),
        least_ratio=min(ratios),
        largest_ratio=max(ratios),
        cpu_ratio=statistics.median(
            theirs.cpu_step_seconds / ours.cpu_step_seconds
            for ours, theirs in zip(of["ours"], of[yardstick], strict=True)
        ),
        peak_memory_bytes={engine: max(one.peak_memory_bytes for one in ones) for engine, ones in of.items()},
        peak_mapped_bytes={engine: max(one.peak_mapped_bytes for one in ones) for engine, ones in of.items()},
        part_seconds={
            part: statistics.median(one.part_seconds[part] for one in of["ours"]) for part in of["ours"][0].part_seconds
        },
        least_seconds=least,
        roofline_fraction={engine: sum(least.values()) / step for engine, step in seconds.items()},
    )


def format_trial(trial: Trial) -> str:
    """Describe one round in one line."""
    speeds = [f"{engine} {trial.cell.batch_size / one.step_seconds:,.0f}" for engine, one in trial.stretches.items()]
    result = f"{', '.join(speeds)} samples/s" if speeds else trial.failure
    return f"{' '.join(_format_cell(trial.cell))}, round {trial.number + 1}: {result}"


def format_markdown(trials: Trials, cells: Sequence[Cell], command: str) -> str:
    """Format the report as Markdown.

    cells: cells of this command; cells that were measured before are included too.
    """
    summaries = _summarise_all(trials)
    rates = _find_best_rates(trials)
    setting = ", ".join(f"{name} {_format_value(value)}" for name, value in trials.setting.items())
    return "\n".join(
        [
            "# Our step compared with TorchRec's own",
            "",
            f"{_get_today()}, `{command}`. {setting}.",
            _format_rates(rates),
            "",
            _format_table(HEAD, [_format_line(summary) for summary in summaries]),
            "",
            "Our step part by part; a part without a least time needs none.",
            "",
            _format_table(PARTS_HEAD, [line for summary in summaries for line in _format_part_lines(summary)]),
            *_format_doubt(summaries),
            *_format_left_out(trials, cells),
        ]
    )


def format_json(trials: Trials, cells: Sequence[Cell], command: str) -> str:
    rates = _find_best_rates(trials)
    document = {
        "date": _get_today(),
        "command": command,
        "setting": trials.setting,
        "rates": None if rates is None else asdict(rates),
        "cells": [asdict(summary) for summary in _summarise_all(trials)],
        "left_out": [{"cell": asdict(cell), "why": why} for cell, why in _list_left_out(trials, cells)],
    }
    return json.dumps(document, indent=1)


def _summarise_all(trials: Trials) -> list[Summary]:
    rates = _find_best_rates(trials)
    if rates is None:
        return []
    rounds = {cell: [trial for trial in trials.get_trials(cell) if trial.stretches] for cell in trials.list_cells()}
    found = [summarise(cell, rounds, rates) for cell, rounds in rounds.items() if rounds]
    return sorted(found, key=lambda summary: _get_sort_key(summary.cell))


def _get_sort_key(cell: Cell) -> tuple[object, ...]:
    """Return the sort key of a cell in the tables."""
    return (
        COMPARISONS.index(cell.comparison),
        BAGS.index(cell.bags),
        cell.world_size,
        cell.ids,
        cell.batch_size,
        cell.transport,
    )


def _find_best_rates(trials: Trials) -> Rates | None:
    measured = [trial.rates for trial in trials if trial.rates is not None]
    if not measured:
        return None
    return Rates(
        copy_bytes_per_second=max(rates.copy_bytes_per_second for rates in measured),
        fp32_flops=max(rates.fp32_flops for rates in measured),
        bf16_flops=max(rates.bf16_flops for rates in measured),
    )


def _list_left_out(trials: Trials, cells: Sequence[Cell]) -> list[tuple[Cell, str]]:
    last = {cell: trials.get_trials(cell)[-1] for cell in trials.list_cells()}
    failed = [(cell, trial.failure) for cell, trial in last.items() if trial.failure]
    return failed + [(cell, "no time was left") for cell in cells if cell not in last]


def _format_doubt(summaries: Sequence[Summary]) -> list[str]:
    """Return a warning where a part of a step was faster than the measured rates allow; empty if none was."""
    parts = [
        (summary.part_seconds[part], least) for summary in summaries for part, least in summary.least_seconds.items()
    ]
    if all(seconds >= least for seconds, least in parts):
        return []
    return [
        "",
        "Shares above 100% are not real: the machine was slower while its rates were measured than during the steps.",
    ]


def _format_left_out(trials: Trials, cells: Sequence[Cell]) -> list[str]:
    found = _list_left_out(trials, cells)
    if not found:
        return []
    return [
        "",
        "Not measured:",
        "",
        _format_table([*CELL_HEAD, "why"], [[*_format_cell(cell), why] for cell, why in found]),
    ]


def _format_line(summary: Summary) -> list[str]:
    theirs = summary.yardstick
    peaks, shares = summary.peak_memory_bytes, summary.roofline_fraction
    return [
        *_format_cell(summary.cell),
        str(summary.num_rounds),
        f"{summary.samples_per_second['ours']:,.0f}",
        f"{summary.samples_per_second[theirs]:,.0f}{', fp16 wire' if theirs == 'torchrec_fp16_wire' else ''}",
        *(f"{ratio:.2f}" for ratio in (summary.ratio, summary.least_ratio, summary.largest_ratio, summary.cpu_ratio)),
        *(f"{peaks[engine] / 1e9:.2f}" for engine in ("ours", theirs)),
        *(f"{shares[engine]:.0%}" for engine in ("ours", theirs)),
    ]


def _format_part_lines(summary: Summary) -> list[list[str]]:
    lines: list[list[str]] = []
    for part, seconds in summary.part_seconds.items():
        least = summary.least_seconds.get(part, 0.0)
        share = f"{least / seconds:.0%}" if least else ""
        lines.append([*_format_cell(summary.cell), part, f"{seconds:.4f}", f"{least:.4f}" if least else "", share])
    return lines


def _format_cell(cell: Cell) -> list[str]:
    return [cell.comparison, str(cell.world_size), f"{cell.batch_size:,}", cell.ids, cell.bags, cell.transport]


def _format_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows])


def _format_rates(rates: Rates | None) -> str:
    if rates is None:
        return "Nothing was measured."
    return (
        f"Best rates of all cores: copy {rates.copy_bytes_per_second / 1e9:.0f} GB/s (read and written), products "
        f"{rates.fp32_flops / 1e9:,.0f} GFLOP/s in fp32 and {rates.bf16_flops / 1e9:,.0f} in bf16."
    )


def _format_value(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)


def _get_today() -> str:
    return datetime.now(UTC).date().isoformat()
