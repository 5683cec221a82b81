"""Display of a sharding plan on the terminal."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.local.console import UNKNOWN, format_duration
from cli.render.job_tables import make_derived_table
from cli.render.tables import cell, dim, make_facts_table, make_table, print_section
from dlrm.config import COMPILE_FROM_SAMPLES, JobConfig, ResolvedJob, format_count, list_methods
from dlrm.record import PART_DESCRIPTIONS
from hostinfo.sizes import format_size, guess_size_base

Plan = Mapping[str, Any]
"""JSON form of `sharding.planner.report.PlanReport`, or of a part of it."""

BAR_CELLS = 30
"""Width of a full bar in characters."""
TERM_CELLS = 12
"""Width of the bars of terms, beside which there are words."""
MAX_GROUPS = 40
"""Largest number of lines in the list of tables."""
TERMS = {
    "ids": "ids sent to the owners of their rows",
    "cache": "rows fetched from the host's memory, where GPUs cache a part of a table",
    "lookup": "rows read and pooled",
    "forward": "pooled embeddings sent back, as far as a rank waits for them",
    "dense": "dense part, forward and backward",
    "give_back": "gradients written to where owners read them, or from where they are sent",
    "backward": "gradients sent to the owners of the rows, as far as a rank waits for them",
    "update": "update of rows and optimizer state",
    "copies_sum": "gradients of copies, summed over ranks",
    "all_reduce": "dense gradients, summed over ranks",
}
"""Explanations of the terms of a step."""
FIGURES = {
    "memory_bandwidth": "B/s",
    "intra_node_bandwidth": "B/s",
    "inter_node_bandwidth": "B/s",
    "host_bandwidth": "B/s",
    "flops": "FLOP/s",
}
"""Speeds of a machine, named as in `sharding.topology` of a job document, with their units."""
SOURCES = {"measured": "measured", "default": "assumed", "job": "from the job"}
WITHOUT_REST = "excluding the time between steps: fetching the next batch, reports, copies for a checkpoint"
SHORT_STEP_SECONDS = 0.1
"""Mean seconds of a step below which a plan says what its estimate leaves out."""
WITHOUT_DENSE = "excluding the dense part, whose speed on this machine is unknown without torch"
OPEN_FIELDS = (
    "fields that the document leaves open are assumed: the training rows, whose number is unknown, decide them"
)

TABLE_BYTES_FIELDS = {"weights": "weight_bytes", "state": "optimizer_bytes", "buffers": "buffer_bytes"}
"""Columns with the bytes of a table, and the fields of its report that they show."""
TABLE_BYTES_NOTE = "weights, optimizer state and buffers: on the rank that holds most of the table"


def print_plan(console: Console, resolved: ResolvedJob, result: Mapping[str, Any]) -> None:
    plan: Plan = result["plan"]
    console.print(_make_facts_table(resolved, result))
    if result["warnings"]:
        print_section(console, "warnings", *(Text(warning, style="yellow") for warning in result["warnings"]))
    open_fields = [] if resolved.asked is None else [dim(OPEN_FIELDS)]
    print_section(console, "decided, and derived", make_derived_table(resolved.derived, resolved), *open_fields)
    if plan["tables"]:
        tables = _make_list_of_tables(plan, resolved.job.model.embedding_dim)
        print_section(console, "tables", tables, dim(TABLE_BYTES_NOTE))
    print_section(console, "memory", *_make_memory_section(plan))
    estimated = _format_seconds(plan["step"]["seconds"])
    estimated += "" if plan["step"]["is_dense_known"] else f", {WITHOUT_DENSE}"
    notes = map(dim, (_describe_speed(plan), _describe_assumptions(plan), *_describe_fixed_costs(result)))
    last = f" of {plan['global_size']:,}" if resolved.job.batch.is_growing else ""
    print_section(
        console, f"a step{last}, estimated: {estimated}", _make_terms_table(plan, result["part_of_term"]), *notes
    )
    if result["measured"]:
        total = sum(result["measured"].values())
        speed = f"{plan['global_size'] / total:,.0f} samples/s, {WITHOUT_REST}"
        parts = _make_measured_table(result["estimated"], result["measured"])
        print_section(console, f"a step, measured: {_format_seconds(total)}", parts, dim(speed))
    if result["notes"]:
        print_section(console, "notes", *map(cell, result["notes"]))


def _make_facts_table(resolved: ResolvedJob, result: Mapping[str, Any]) -> Table:
    plan: Plan = result["plan"]
    topology, tables, model, batch = plan["topology"], plan["tables"], resolved.job.model, resolved.job.batch
    kind = "GPU" if topology["device"] == "cuda" else "CPU"
    size = _make_size_formatter(plan)
    facts: dict[str, str | None] = {
        "job": resolved.job.name,
        "machine": f"{topology['num_nodes']} x {format_count(topology['ranks_per_node'], 'rank')} on {kind}s, "
        f"{size(topology['memory_bytes'])} {'each' if kind == 'GPU' else 'per machine'}"
        f"{' (assumed)' if topology['sources']['memory_bytes'] == 'default' else ''}",
        "tables": f"{len(tables):,}, {format_count(sum(table['num_rows'] for table in tables), 'row')}, "
        f"{size(plan['weight_bytes'])} of weights; sizes from {result['sizes_from']}",
        "batch": f"{format_count(plan['global_size'], 'sample')}, {resolved.share_size:,} per rank, "
        f"in chunks of {resolved.chunk_size:,}" + (f"; grown from {batch.first_size:,}" if batch.is_growing else ""),
        **_describe_run(resolved, result),
        "model": f"{model.architecture}, embedding dimension {model.embedding_dim}, dense part in "
        f"{resolved.job.precision}",
        "optimizers": f"{resolved.job.dense_optimizer.name} for the dense part, "
        f"{resolved.job.table_optimizer.name} for the tables",
        "methods": "; ".join(list_methods(resolved.job)) or None,
        "CUDA graphs": _describe_cuda_graphs(resolved.job, result["num_samples"]) if kind == "GPU" else None,
        "exchange": _describe_exchange(plan),
        "imbalance": f"{plan['imbalance']:.2f} in time, {plan['imbalance_of_bytes']:.2f} in bytes (1 is perfect)",
        "checked": "every row and column is on exactly one rank or copied to all; every rank has enough memory",
        "planned in": _format_seconds(result["seconds"]),
    }
    return make_facts_table(facts.items())


def _describe_cuda_graphs(job: JobConfig, num_samples: int | None) -> str:
    """Describe how a GPU runs the dense part of a chunk. num_samples: samples of the run; None if not known."""
    resources = job.resources
    if resources.cuda_graphs == "off":
        return "off: one operation after another"
    if resources.cuda_graphs == "auto" and num_samples is None:
        return f"on, compiled if the run has {COMPILE_FROM_SAMPLES:,} samples or more"
    if resources.compiles_graphs(num_samples or 0):
        return "compiled: torch.compile makes their kernels, which takes minutes at the start"
    return f"on, not compiled: the run has fewer than {COMPILE_FROM_SAMPLES:,} samples"


def _describe_run(resolved: ResolvedJob, result: Mapping[str, Any]) -> dict[str, str]:
    """Describe how long a run is, as a fact; none if its rows are not known."""
    num_steps, num_samples, seconds = result["num_steps"], result["num_samples"], result["training_seconds"]
    if num_samples is None:
        return {}
    last = resolved.job.batch.global_size
    length = format_count(num_samples, "sample")
    if num_steps is not None:
        length += f" in {format_count(num_steps, 'step')}"
    if resolved.job.batch.is_growing:
        length += f", {format_count(-(-num_samples // last), 'step')} if all were of {last:,}"
    if seconds is not None:
        length += f"; about {format_duration(seconds)} of training, estimated"
    return {"run": length}


def _make_size_formatter(plan: Plan) -> Callable[[float], str]:
    """Return a formatter of sizes in bytes, in decimal or binary units like the memory in the plan."""
    return partial(format_size, base=guess_size_base(plan["memory_bytes"]))


def _describe_exchange(plan: Plan) -> str:
    if plan["transport"] == "memory":
        return "none: all ranks share one memory"
    traffic, size = plan["exchange_bytes"], _make_size_formatter(plan)
    labels = {"ids": "ids", "forward": "forward", "backward": "backward", "all_reduce": "sums"}
    amounts = ", ".join(f"{label} {size(traffic[name])}" for name, label in labels.items())
    return f"{amounts} per step, all ranks together; pooled embeddings in {plan['exchange_dtype']}"


def _make_list_of_tables(plan: Plan, widest: int) -> Table:
    """Return the list of tables; alike ones share a line.

    Bytes are those on the rank that holds most of a table. widest: dimension that is not listed if all have it.
    """
    has_dims = any(entry["embedding_dim"] != widest for entry in plan["tables"])
    headings = ("tables", "rows", *(["dim"] if has_dims else []), "type", "ranks", *TABLE_BYTES_FIELDS, "why")
    table, size = make_table(*headings, left=("type", "ranks", "why")), _make_size_formatter(plan)

    def group_key(entry: Plan) -> tuple[Any, ...]:
        key = (-entry["num_rows"], entry["type"], len(entry["ranks"]), entry["reason"])
        return (*key, len(entry["blocks"]), entry["embedding_dim"])

    groups = [list(group) for _, group in groupby(sorted(plan["tables"], key=group_key), key=group_key)]
    for group in groups[:MAX_GROUPS]:
        first = group[0]
        largest = first["weight_bytes"].index(max(first["weight_bytes"]))
        table.add_row(
            cell(_format_names(group)),
            f"{first['num_rows']:,}",
            *([f"{first['embedding_dim']}"] if has_dims else []),
            first["type"],
            _format_ranks(group, plan["world_size"]),
            *(size(first[kind][largest]) for kind in TABLE_BYTES_FIELDS.values()),
            dim(first["reason"]),
        )
    if len(groups) > MAX_GROUPS:
        left = sum(map(len, groups[MAX_GROUPS:]))
        table.add_row(f"and {left:,} smaller tables; --json lists all")
    return table


def _format_names(group: Sequence[Plan]) -> str:
    names = [table["name"] for table in group]
    if len(names) <= 3:
        return ", ".join(names)
    return f"{len(names):,} of {names[0]} … {names[-1]}"


def _format_ranks(group: Sequence[Plan], world_size: int) -> str:
    number = len(group[0]["ranks"])
    if number == world_size > 1:
        return "all"
    owners = sorted({rank for table in group for rank in table["ranks"]})
    if len(group) > 1 and number > 1:
        return f"{number} each"
    return format_spans(owners)


def format_spans(numbers: Sequence[int]) -> str:
    """Format sorted numbers as spans, such as "0-3, 8"; only their number if there are more than six spans."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    spans = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return ", ".join(spans) if len(spans) <= 6 else f"{len(numbers)} of them"


def _make_memory_section(plan: Plan) -> list[Table | Text]:
    """Return the table of memory by rank, with a bar, and its summary.

    Ranks with the same rounded percentage share a line. On CPUs all ranks of a machine share its memory, so the bar of
    a rank shows what they would use together if each used as much as this one.
    """
    ranks, capacity, size = plan["ranks"], plan["memory_bytes"], _make_size_formatter(plan)
    is_shared = plan["topology"]["device"] == "cpu"
    ranks_per_memory = plan["topology"]["ranks_per_node"] if is_shared else 1
    table = make_table("rank", "weights", "state", "buffers", "total", "", left=("",), wraps=())

    def percentage(number: int) -> int:
        return round(100 * ranks[number]["total_bytes"] * ranks_per_memory / capacity)

    in_order = sorted(range(len(ranks)), key=lambda number: (-percentage(number), number))
    for _, group in groupby(in_order, key=percentage):
        numbers = list(group)
        largest = max((ranks[number] for number in numbers), key=lambda rank: rank["total_bytes"])
        buffers = sum(largest["buffer_bytes"].values())
        figures = (largest["weight_bytes"], largest["optimizer_bytes"], buffers, largest["total_bytes"])
        share = largest["total_bytes"] * ranks_per_memory / capacity
        table.add_row(_format_rank_numbers(numbers), *map(size, figures), draw_bar(share))
    largest = max(ranks, key=lambda rank: rank["total_bytes"])
    parts = ", ".join(f"{name} {size(num_bytes)}" for name, num_bytes in largest["buffer_bytes"].items() if num_bytes)
    users = "all ranks of a machine" if is_shared else "the fullest rank"
    summary = f"{users}: {size(plan['largest_bytes'])} of {size(capacity)}; buffers of a rank: {parts}"
    on_host = f"; in the host's memory, of a rank: {size(max(rank['host_bytes'] for rank in ranks))} of tables"
    in_files = f"; in files, of all ranks: {size(plan['file_bytes'])} of tables" if plan["file_bytes"] else ""
    return [table, dim(summary + (on_host if has_caches(plan) else "") + in_files)]


def _format_rank_numbers(numbers: Sequence[int]) -> str:
    words = format_spans(sorted(numbers))
    return words if len(words) <= 24 else f"{len(numbers)} ranks"


def _make_terms_table(plan: Plan, part_of_term: Mapping[str, str]) -> Table:
    """Return the table of the estimated terms of a step, each with the measured part of a step to which it belongs.

    part_of_term: that part, by term.
    """
    step = plan["step"]
    table = make_table("part", "term", "per step", "", "", left=("term", ""), wraps=("",))
    parts = [*PART_DESCRIPTIONS]
    last_part = None
    for name in sorted(step["terms"], key=lambda term: parts.index(part_of_term[term])):
        part, seconds, words = part_of_term[name], step["terms"][name], dim(TERMS.get(name, ""))
        shown = "" if part == last_part else part
        if name == "dense" and not step["is_dense_known"]:
            table.add_row(shown, name, "?", "", words.append(": unknown"))
        elif seconds:
            table.add_row(shown, name, _format_seconds(seconds), draw_bar(seconds / step["seconds"], TERM_CELLS), words)
        else:
            continue
        last_part = part
    return table


def _make_measured_table(estimated: Mapping[str, float], measured: Mapping[str, float]) -> Table:
    """Return the table of estimated and measured seconds by part of a step."""
    table = make_table("part", "estimated", "measured", "", left=("",))
    names = [name for name in PART_DESCRIPTIONS if name in measured or name in estimated]
    for name in (*names, *(name for name in measured if name not in PART_DESCRIPTIONS)):
        seconds = (_format_seconds(parts[name]) if name in parts else UNKNOWN for parts in (estimated, measured))
        table.add_row(Text(name), *seconds, dim(PART_DESCRIPTIONS.get(name, "")))
    totals = (_format_seconds(sum(parts.values())) if parts else UNKNOWN for parts in (estimated, measured))
    table.add_row("total", *totals)
    return table


def _describe_speed(plan: Plan) -> str:
    step = plan["step"]
    samples = f"{step['samples_per_second']:,.0f} samples/s"
    samples += "" if step["is_dense_known"] else f", {WITHOUT_DENSE}"
    return f"the slowest rank is {step['rank']}; if terms do not overlap: {samples}"


def _describe_assumptions(plan: Plan) -> str:
    """Describe the speeds of a rank that the estimate assumes, each with its source."""
    topology = plan["topology"]
    speeds = [
        f"{name} {_format_rate(topology[name], unit)} ({SOURCES[topology['sources'][name]]})"
        for name, unit in FIGURES.items()
        if affects_estimate(name, plan) and topology[name] is not None
    ]
    return f"speeds of one rank in this estimate: {', '.join(speeds)}; set better figures in sharding.topology"


def _describe_fixed_costs(result: Mapping[str, Any]) -> list[str]:
    """Describe what the estimate leaves out if steps are short; empty if they are long enough to hide it."""
    seconds, num_steps = result["training_seconds"], result["num_steps"]
    mean = seconds / num_steps if seconds is not None and num_steps else result["plan"]["step"]["seconds"]
    if mean >= SHORT_STEP_SECONDS:
        return []
    return [
        f"steps of {_format_seconds(mean)} on average take some ms longer than this: what a step costs whatever its "
        "batch, such as its calls and the optimizer, is not in the estimate"
    ]


def _format_rate(figure: float, unit: str) -> str:
    """Format a rate with a decimal prefix, such as "2.0 TB/s"."""
    prefixes = iter(("M", "G", "T", "P"))
    prefix, figure = next(prefixes), figure / 1e6
    while figure >= 1000 and (larger := next(prefixes, None)):
        prefix, figure = larger, figure / 1000
    return f"{figure:,.1f} {prefix}{unit}"


def affects_estimate(figure: str, plan: Plan) -> bool:
    """Whether the estimate depends on this speed of the machine. figure: a key of FIGURES."""
    if figure == "inter_node_bandwidth":
        return plan["topology"]["num_nodes"] > 1
    if figure == "host_bandwidth":
        return has_caches(plan)
    return figure != "intra_node_bandwidth" or (plan["transport"] != "memory" and plan["world_size"] > 1)


def has_caches(plan: Plan) -> bool:
    """Whether tables stay in the memory of the host, and GPUs cache rows of them."""
    return any(table["cache_share"] < 1 for table in plan["tables"])


def draw_bar(share: float, num_cells: int = BAR_CELLS) -> Text:
    filled = min(num_cells, round(share * num_cells))
    text = Text("█" * filled, style="red" if share > 1 else "cyan")
    return text.append("·" * (num_cells - filled), style="dim").append(f" {100 * share:.0f} %", style="default")


def _format_seconds(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:,.2f} s"
    return f"{seconds * 1e3:,.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:,.0f} µs"
