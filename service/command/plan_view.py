"""A plan as people read it."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dlrm.config import ResolvedJob
from service.command.words import printable

Plan = Mapping[str, Any]
"""As `sharding.plan.answer.Answer` comes in JSON."""

BAR_CELLS = 30
MOST_GROUPS = 40
TERMS = {
    "ids": "ids to the owners of their rows",
    "lookup": "rows read and pooled",
    "forward": "pooled embeddings back",
    "dense": "dense part, forward and backward",
    "backward": "gradients to where owners read them",
    "update": "rows and optimizer state",
    "all_reduce": "sums over ranks",
}
PART_ORDER = ("lookup", "dense", "give_back", "agree", "table_update", "wait_for_sum", "optimizer")


def print_plan(console: Console, resolved: ResolvedJob, result: Mapping[str, Any]) -> None:
    plan: Plan = result["plan"]
    console.print(_facts(resolved, result))
    if plan["tables"]:
        _print(console, "tables", _tables(plan))
    _print(console, "memory", *_memory(plan))
    _print(console, f"a step, estimated: {_time(plan['step']['seconds'])}", _terms(plan))
    if result["measured"]:
        total = sum(result["measured"].values())
        _print(console, f"a step, measured: {_time(total)}", _measured(plan, result["measured"]))
    for note in _notes(plan):
        console.print(Text(note, style="dim"), soft_wrap=True)


def _print(console: Console, heading: str, *content: Table | Text) -> None:
    console.print(f"\n[bold]{heading}[/bold]", highlight=False)
    for part in content:
        console.print(part, soft_wrap=not isinstance(part, Table))


def _facts(resolved: ResolvedJob, result: Mapping[str, Any]) -> Table:
    plan: Plan = result["plan"]
    topology, tables = plan["topology"], plan["tables"]
    kind = "GPU" if topology["device"] == "cuda" else "CPU"
    weights = sum(sum(table["weight_bytes"]) for table in tables)
    facts = {
        "job": printable(resolved.job.name),
        "machine": f"{topology['num_nodes']} x {topology['ranks_per_node']} ranks on {kind}s, "
        f"{gigabytes(topology['memory_bytes'])} {'each' if kind == 'GPU' else 'a machine'}",
        "tables": f"{len(tables):,}, {sum(table['num_rows'] for table in tables):,} rows, {gigabytes(weights)} of "
        f"weights; sizes from {printable(result['sizes_from'])}",
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
        table.add_row(name, words)
    return table


def _exchange(plan: Plan) -> str:
    if plan["transport"] == "memory":
        return "none: all ranks read one memory"
    traffic = plan["exchange_bytes"]
    named = {"ids": "ids", "forward": "forward", "backward": "backward", "all_reduce": "sums"}
    listed = ", ".join(f"{words} {gigabytes(traffic[name])}" for name, words in named.items())
    return f"{listed} a step, all ranks together"


def _tables(plan: Plan) -> Table:
    """A line for tables that are alike in size, type and number of parts."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("tables", "rows", "type", "ranks", "a rank", "why"):
        table.add_column(heading, justify="right" if heading in ("rows", "a rank") else "left")

    def alike(of_table: Plan) -> tuple[Any, ...]:
        key = (-of_table["num_rows"], of_table["type"], len(of_table["ranks"]), of_table["reason"])
        return (*key, len(of_table["blocks"]))

    groups = [list(group) for _, group in groupby(sorted(plan["tables"], key=alike), key=alike)]
    for group in groups[:MOST_GROUPS]:
        first = group[0]
        held = max(first["weight_bytes"]) + max(first["optimizer_bytes"])
        table.add_row(
            Text(printable(_names(group))),
            f"{first['num_rows']:,}",
            first["type"],
            _ranks(group, plan["world_size"]),
            gigabytes(held),
            Text(first["reason"], style="dim"),
        )
    if len(groups) > MOST_GROUPS:
        left = sum(map(len, groups[MOST_GROUPS:]))
        table.add_row(f"and {left:,} smaller ones; --json has all", "", "", "", "", "")
    return table


def _names(group: Sequence[Plan]) -> str:
    names = [table["name"] for table in group]
    if len(names) <= 3:
        return ", ".join(names)
    return f"{len(names):,}: {names[0]} … {names[-1]}"


def _ranks(group: Sequence[Plan], world_size: int) -> str:
    number = len(group[0]["ranks"])
    if number == world_size > 1:
        return "all"
    owners = sorted({rank for table in group for rank in table["ranks"]})
    if len(group) > 1 and number > 1:
        return f"{number} each"
    return spans(owners)


def spans(numbers: Sequence[int]) -> str:
    """Such as 0-3, 8."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    words = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in found]
    return ", ".join(words) if len(words) <= 6 else f"{len(numbers)} of them"


def _memory(plan: Plan) -> list[Table | Text]:
    """A bar a rank; ranks that hold alike are one line."""
    ranks, capacity = plan["ranks"], plan["memory_bytes"]
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
        table.add_row(_some(numbers), *map(gigabytes, figures), bar(largest["total_bytes"] * in_pool / capacity))
    largest = max(ranks, key=lambda rank: rank["total_bytes"])
    listed = ", ".join(f"{name} {gigabytes(size)}" for name, size in largest["buffer_bytes"].items() if size)
    of_what = "the ranks of a machine together" if is_shared else "the fullest rank"
    summary = f"{of_what}: {gigabytes(plan['largest_bytes'])} of {gigabytes(capacity)}; buffers of a rank: {listed}"
    return [table, Text(summary, style="dim")]


def _some(numbers: Sequence[int]) -> str:
    words = spans(sorted(numbers))
    return words if len(words) <= 24 else f"{len(numbers)} ranks"


def _terms(plan: Plan) -> Table:
    step = plan["step"]
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(style="dim")
    for name, words in TERMS.items():
        seconds = step["terms"][name]
        if name == "dense" and not step["is_dense_known"]:
            table.add_row("dense", "?", "", f"{words}: not known on this machine without torch")
        elif seconds:
            table.add_row(name, _time(seconds), bar(seconds / step["seconds"]), words)
    return table


def _measured(plan: Plan, measured: Mapping[str, float]) -> Table:
    """By part of the run's clock."""
    estimated: Mapping[str, float] = plan["step"]["parts"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("part", "estimated", "measured"):
        table.add_column(heading, justify="left" if heading == "part" else "right")
    names = [name for name in PART_ORDER if name in measured or name in estimated]
    for name in (*names, *(name for name in measured if name not in PART_ORDER)):
        table.add_row(name, *(_time(of[name]) if name in of else "-" for of in (estimated, measured)))
    table.add_row("all", _time(sum(estimated.values())), _time(sum(measured.values())))
    return table


def _notes(plan: Plan) -> list[str]:
    sources = plan["topology"]["sources"]
    assumed = sorted(name for name, source in sources.items() if source == "default")
    samples = f"{plan['step']['samples_per_second']:,.0f} samples/s"
    notes = [f"the slowest rank is {plan['step']['rank']}; without overlap of terms that is {samples}"]
    if assumed and plan["topology"]["num_nodes"] * plan["topology"]["ranks_per_node"] > 1:
        shown = [name for name in assumed if name != "inter_node_bandwidth" or plan["topology"]["num_nodes"] > 1]
        notes += [f"assumed, not measured: {', '.join(shown)}; sharding.topology has them"] if shown else []
    return notes


def bar(share: float) -> Text:
    filled = min(BAR_CELLS, round(share * BAR_CELLS))
    text = Text("█" * filled, style="red" if share > 1 else "cyan")
    return text.append("·" * (BAR_CELLS - filled), style="dim").append(f" {100 * share:.0f} %", style="default")


def gigabytes(num_bytes: float) -> str:
    """Decimal, as memory of GPUs is sold."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes:,.0f} B"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:,.2f} s"
    return f"{seconds * 1e3:,.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:,.0f} µs"
