"""Display of a sharding plan on the terminal."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dlrm.config import ResolvedJob
from dlrm.record import PART_WORDS
from service.cli.text_format import UNKNOWN, printable
from service.sizes import base_of_size, size_in_bytes

Plan = Mapping[str, Any]
"""JSON form of `sharding.planner.report.PlanReport`, or of a part of it."""

BAR_CELLS = 30
"""Width of a full bar in characters."""
MAX_GROUPS = 40
"""Largest number of lines in the list of tables."""
TERMS = {
    "ids": "ids to the owners of their rows",
    "lookup": "rows read and pooled",
    "forward": "pooled embeddings back",
    "dense": "dense part, forward and backward",
    "backward": "gradients to where owners read them",
    "update": "rows and optimizer state",
    "copies_sum": "gradients of copies, summed over ranks",
    "all_reduce": "dense gradients, summed over ranks",
}
"""Explanations of the terms of a step."""
FIGURES = {
    "memory_bandwidth": "B/s",
    "intra_node_bandwidth": "B/s",
    "inter_node_bandwidth": "B/s",
    "flops": "FLOP/s",
}
"""Speeds of a machine, named as in `sharding.topology` of a job document, with their units."""
SOURCES = {"measured": "measured", "default": "assumed", "job": "the job's"}
WITHOUT_REST = "without what is between steps, which no part has: the next batch, reports, copies for a checkpoint"
WITHOUT_DENSE = "without the dense part, whose speed is not known on this machine without torch"


OF_LARGEST_PART = {"weights": "weight_bytes", "state": "optimizer_bytes", "buffers": "buffer_bytes"}
"""Columns with the bytes of a table, and the fields of its report that they show."""
OF_WHOM = "weights, optimizer state and buffers of a table: on the rank that holds most of it"


def print_plan(console: Console, resolved: ResolvedJob, result: Mapping[str, Any]) -> None:
    plan: Plan = result["plan"]
    console.print(_facts(resolved, result))
    if plan["tables"]:
        _print(console, "tables", _tables(plan), Text(OF_WHOM, style="dim"))
    _print(console, "memory", *_memory(plan))
    estimated = _time(plan["step"]["seconds"])
    estimated += "" if plan["step"]["is_dense_known"] else f", {WITHOUT_DENSE}"
    about = (Text(line, style="dim") for line in (_speed(plan), _goes_by(plan)))
    _print(console, f"a step, estimated: {estimated}", _terms(plan, result["part_of_term"]), *about)
    if result["measured"]:
        total = sum(result["measured"].values())
        speed = f"{plan['global_size'] / total:,.0f} samples/s, {WITHOUT_REST}"
        parts = _measured(result["estimated"], result["measured"])
        _print(console, f"a step, measured: {_time(total)}", parts, Text(speed, style="dim"))
    if result["notes"]:
        _print(console, "notes", *(Text(printable(note)) for note in result["notes"]))


def _print(console: Console, heading: str, *content: Table | Text) -> None:
    console.print(f"\n[bold]{heading}[/bold]", highlight=False)
    for part in content:
        console.print(part, soft_wrap=not isinstance(part, Table))


def _facts(resolved: ResolvedJob, result: Mapping[str, Any]) -> Table:
    plan: Plan = result["plan"]
    topology, tables = plan["topology"], plan["tables"]
    kind = "GPU" if topology["device"] == "cuda" else "CPU"
    weights = sum(sum(table["weight_bytes"]) for table in tables)
    size = _sizes(plan)
    facts = {
        "job": printable(resolved.job.name),
        "machine": f"{topology['num_nodes']} x {topology['ranks_per_node']} ranks on {kind}s, "
        f"{size(topology['memory_bytes'])} {'each' if kind == 'GPU' else 'a machine'}",
        "tables": f"{len(tables):,}, {sum(table['num_rows'] for table in tables):,} rows, {size(weights)} of "
        f"weights; sizes from {printable(result['sizes_from'])}",
        "batch": f"{plan['global_size']:,} samples, {resolved.share_size:,} a rank, "
        f"looked up in chunks of {resolved.chunk_size:,}",
        "numbers": f"embedding dimension {resolved.job.model.embedding_dim}, dense part in {resolved.job.precision}",
        "optimizer": plan["optimizer"],
        "exchange": _exchange(plan),
        "imbalance": f"{plan['imbalance']:.2f} in time, {plan['imbalance_of_bytes']:.2f} in bytes (1 is perfect)",
        "checked": "every row and column is on one rank, or a copy on all; every rank has room",
        "planned in": _time(result["seconds"]),
    }
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, words in facts.items():
        table.add_row(name, Text(words))
    return table


def _sizes(plan: Plan) -> Callable[[float], str]:
    """Return a formatter of sizes in bytes, in decimal or binary units like those of the memory in the plan."""
    return partial(size_in_bytes, base=base_of_size(plan["memory_bytes"]))


def _exchange(plan: Plan) -> str:
    if plan["transport"] == "memory":
        return "none: all ranks read one memory"
    traffic, size = plan["exchange_bytes"], _sizes(plan)
    named = {"ids": "ids", "forward": "forward", "backward": "backward", "all_reduce": "sums"}
    listed = ", ".join(f"{words} {size(traffic[name])}" for name, words in named.items())
    return f"{listed} a step, all ranks together; pooled embeddings in {plan['exchange_dtype']}"


def _tables(plan: Plan) -> Table:
    """Return the list of tables; those with the same rows, type, reason and numbers of ranks and blocks share a line.

    Bytes are those on the rank that holds most of a table.
    """
    table, size = Table(box=None, pad_edge=False, header_style="bold"), _sizes(plan)
    figures = ("rows", *OF_LARGEST_PART)
    for heading in ("tables", "rows", "type", "ranks", *OF_LARGEST_PART, "why"):
        table.add_column(heading, justify="right" if heading in figures else "left")

    def alike(of_table: Plan) -> tuple[Any, ...]:
        key = (-of_table["num_rows"], of_table["type"], len(of_table["ranks"]), of_table["reason"])
        return (*key, len(of_table["blocks"]))

    groups = [list(group) for _, group in groupby(sorted(plan["tables"], key=alike), key=alike)]
    for group in groups[:MAX_GROUPS]:
        first = group[0]
        most = first["weight_bytes"].index(max(first["weight_bytes"]))
        table.add_row(
            Text(printable(_names(group))),
            f"{first['num_rows']:,}",
            first["type"],
            _ranks(group, plan["world_size"]),
            *(size(first[kind][most]) for kind in OF_LARGEST_PART.values()),
            Text(first["reason"], style="dim"),
        )
    if len(groups) > MAX_GROUPS:
        left = sum(map(len, groups[MAX_GROUPS:]))
        table.add_row(f"and {left:,} smaller ones; --json has all")
    return table


def _names(group: Sequence[Plan]) -> str:
    names = [table["name"] for table in group]
    if len(names) <= 3:
        return ", ".join(names)
    return f"{len(names):,} of {names[0]} … {names[-1]}"


def _ranks(group: Sequence[Plan], world_size: int) -> str:
    number = len(group[0]["ranks"])
    if number == world_size > 1:
        return "all"
    owners = sorted({rank for table in group for rank in table["ranks"]})
    if len(group) > 1 and number > 1:
        return f"{number} each"
    return spans(owners)


def spans(numbers: Sequence[int]) -> str:
    """Format sorted numbers as spans, such as "0-3, 8"; only their number where there are more than six spans."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    words = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in found]
    return ", ".join(words) if len(words) <= 6 else f"{len(numbers)} of them"


def _memory(plan: Plan) -> list[Table | Text]:
    """Return the table of memory by rank, with a bar, and its summary.

    Ranks with the same rounded percentage share a line. On CPUs all ranks of a machine share its memory, so the bar of
    a rank shows what they would use together if each used as much as this one.
    """
    ranks, capacity, size = plan["ranks"], plan["memory_bytes"], _sizes(plan)
    is_shared = plan["topology"]["device"] == "cpu"
    in_pool = plan["topology"]["ranks_per_node"] if is_shared else 1
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("rank", "weights", "state", "buffers", "all", ""):
        table.add_column(heading, justify="left" if heading in ("rank", "") else "right", no_wrap=True)

    def level(number: int) -> int:
        return round(100 * ranks[number]["total_bytes"] * in_pool / capacity)

    in_order = sorted(range(len(ranks)), key=lambda number: (-level(number), number))
    for _, group in groupby(in_order, key=level):
        numbers = list(group)
        largest = max((ranks[number] for number in numbers), key=lambda rank: rank["total_bytes"])
        buffers = sum(largest["buffer_bytes"].values())
        figures = (largest["weight_bytes"], largest["optimizer_bytes"], buffers, largest["total_bytes"])
        table.add_row(_some(numbers), *map(size, figures), bar(largest["total_bytes"] * in_pool / capacity))
    largest = max(ranks, key=lambda rank: rank["total_bytes"])
    listed = ", ".join(f"{name} {size(held)}" for name, held in largest["buffer_bytes"].items() if held)
    of_what = "the ranks of a machine together" if is_shared else "the fullest rank"
    summary = f"{of_what}: {size(plan['largest_bytes'])} of {size(capacity)}; buffers of a rank: {listed}"
    return [table, Text(summary, style="dim")]


def _some(numbers: Sequence[int]) -> str:
    words = spans(sorted(numbers))
    return words if len(words) <= 24 else f"{len(numbers)} ranks"


def _terms(plan: Plan, part_of_term: Mapping[str, str]) -> Table:
    """Return the table of the estimated terms of a step, each with the measured part of a step to which it belongs.

    part_of_term: that part, by term.
    """
    step = plan["step"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("part", "term", "a step", "", ""):
        table.add_column(heading, justify="right" if heading == "a step" else "left", no_wrap=bool(heading))
    parts = [*PART_WORDS]
    last_part = None
    for name in sorted(step["terms"], key=lambda term: parts.index(part_of_term[term])):
        part, seconds, words = part_of_term[name], step["terms"][name], Text(TERMS.get(name, ""), style="dim")
        shown = "" if part == last_part else part
        if name == "dense" and not step["is_dense_known"]:
            table.add_row(shown, name, "?", "", words.append(": not known"))
        elif seconds:
            table.add_row(shown, name, _time(seconds), bar(seconds / step["seconds"]), words)
        else:
            continue
        last_part = part
    return table


def _measured(estimated: Mapping[str, float], measured: Mapping[str, float]) -> Table:
    """Return the table of estimated and measured seconds by part of a step."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("part", "estimated", "measured", ""):
        table.add_column(heading, justify="right" if heading in ("estimated", "measured") else "left")
    names = [name for name in PART_WORDS if name in measured or name in estimated]
    for name in (*names, *(name for name in measured if name not in PART_WORDS)):
        seconds = (_time(of[name]) if name in of else UNKNOWN for of in (estimated, measured))
        table.add_row(Text(name), *seconds, Text(PART_WORDS.get(name, ""), style="dim"))
    table.add_row("all", *(_time(sum(of.values())) if of else UNKNOWN for of in (estimated, measured)))
    return table


def _speed(plan: Plan) -> str:
    step = plan["step"]
    samples = f"{step['samples_per_second']:,.0f} samples/s"
    samples += "" if step["is_dense_known"] else f", {WITHOUT_DENSE}"
    return f"the slowest rank is {step['rank']}; without overlap of terms that is {samples}"


def _goes_by(plan: Plan) -> str:
    """Describe the speeds of a rank on which the estimate depends, each with its source."""
    topology = plan["topology"]
    named = [
        f"{name} {_rate(topology[name], unit)} ({SOURCES[topology['sources'][name]]})"
        for name, unit in FIGURES.items()
        if counts(name, plan) and topology[name] is not None
    ]
    return f"goes by, of one rank: {', '.join(named)}; of what is known better, set it in sharding.topology"


def _rate(figure: float, unit: str) -> str:
    """Format a rate with a decimal prefix, such as "2.0 TB/s"."""
    prefixes = iter(("M", "G", "T", "P"))
    prefix, figure = next(prefixes), figure / 1e6
    while figure >= 1000 and (larger := next(prefixes, None)):
        prefix, figure = larger, figure / 1000
    return f"{figure:,.1f} {prefix}{unit}"


def counts(figure: str, plan: Plan) -> bool:
    """Whether the estimate depends on this speed of the machine. figure: a key of FIGURES."""
    if figure == "inter_node_bandwidth":
        return plan["topology"]["num_nodes"] > 1
    return figure != "intra_node_bandwidth" or (plan["transport"] == "network" and plan["world_size"] > 1)


def bar(share: float) -> Text:
    filled = min(BAR_CELLS, round(share * BAR_CELLS))
    text = Text("█" * filled, style="red" if share > 1 else "cyan")
    return text.append("·" * (BAR_CELLS - filled), style="dim").append(f" {100 * share:.0f} %", style="default")


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:,.2f} s"
    return f"{seconds * 1e3:,.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:,.0f} µs"
