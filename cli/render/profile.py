"""Display of the profile of training steps: the time of their parts and operators."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.local.console import UNKNOWN, print_heading, print_line
from cli.render.tables import dim, make_table
from dlrm.config import format_count
from dlrm.record import PART_DESCRIPTIONS, WAIT_FOR_ROWS, ProfileDirectory, StepProfile

BETWEEN_STEPS = "between steps"
"""Name of the time that belongs to no part of a step."""
REST = "the rest: smaller operators, Python, waiting"
MAX_WAIT_FOR_ROWS = 0.1
"""Fraction of a step in which a rank may wait for rows before a message says how to avoid it."""
DESCRIPTIONS = {
    **PART_DESCRIPTIONS,
    BETWEEN_STEPS: "ids of the next batch on their way, reports, copies for a checkpoint; excluding evaluations",
}


def print_profile(console: Console, directory: ProfileDirectory) -> None:
    """Print the profiles that the ranks wrote to `directory`, or a message if there are none."""
    profiles = directory.read()
    if not profiles:
        print_line(console, "no profile: no steps were left to run, or the run ended before the steps to profile")
        return
    first = profiles[0]
    steps = f"steps {first.first_step} to {first.first_step + first.num_steps - 1}, {_describe_warm_up(first)}"
    print_heading(console, f"time of a step: {1e3 * first.seconds_per_step:,.1f} ms, mean of {steps}")
    console.print(make_parts_table(profiles))
    _print_wait_for_rows(console, profiles)
    if first.exchanges:
        print_heading(console, f"exchange with other ranks while rank {first.rank} computes")
        console.print(make_exchanges_table(first))
    print_heading(console, f"operators, by their own time on rank {first.rank}")
    console.print(make_operators_table(first))
    if len(profiles) < first.num_ranks:
        shown = f"{len(profiles)} of {format_count(first.num_ranks, 'rank')} are shown"
        place = f"{directory.path.parent.name}/{directory.path.name} there"
        theirs = f"machines with directories of their own keep the profiles of theirs in {place}"
        print_line(console, f"{shown}, the others left no profile here: {theirs}, and of the run in its bucket")
    traces = ", ".join(str(directory.trace(profile.rank)) for profile in profiles)
    print_line(console, f"traces, for https://ui.perfetto.dev: {traces}")


def _print_wait_for_rows(console: Console, profiles: Sequence[StepProfile]) -> None:
    """Print how to make rows faster, if some rank waits long for them."""
    waits = {profile.rank: profile.parts.get(WAIT_FOR_ROWS, 0.0) / profile.seconds_per_step for profile in profiles}
    slowest = max(waits, key=lambda rank: waits[rank])
    if waits[slowest] > MAX_WAIT_FOR_ROWS:
        remedy = "prepared rows are read faster than synthetic ones are generated"
        share = f"{100 * waits[slowest]:.0f} % of a step"
        threads = "with a GPU, more resources.threads_per_worker read them faster"
        print_line(console, f"rank {slowest} waits for rows in {share}: {remedy}; {threads}")


def make_parts_table(profiles: Sequence[StepProfile]) -> Table:
    """Return a table with a row for each part of a step: milliseconds on the first profiled rank, share of the step,
    milliseconds on the slowest rank, and an explanation.
    """
    first = profiles[0]
    table = make_table("part", f"rank {first.rank}, ms per step", "share", "slowest rank, ms", wraps=("part",))
    table.add_column()
    parts = [_add_rest(profile) for profile in profiles]
    for name, seconds in parts[0].items():
        slowest = max(parts_of_rank.get(name, 0.0) for parts_of_rank in parts)
        figures = _format_ms(seconds), _format_share(seconds, first), _format_ms(slowest)
        table.add_row(Text(name), *figures, dim(DESCRIPTIONS.get(name, "")))
    return table


def make_exchanges_table(profile: StepProfile) -> Table:
    """Return a table with a row for each kind of exchange: how long it is in flight, and how long the rank waits."""
    table = make_table("exchange", "in flight, ms per step", "waited for, ms", "sent, MB", wraps=("exchange",))
    for exchange in sorted(profile.exchanges, key=lambda exchange: exchange.in_flight_seconds, reverse=True):
        seconds = _format_ms(exchange.in_flight_seconds), _format_ms(exchange.waited_seconds)
        table.add_row(Text(exchange.kind), *seconds, f"{exchange.sent_bytes / 1e6:,.2f}")
    return table


def make_operators_table(profile: StepProfile) -> Table:
    table = make_table("operator", "ms per step", "share", "calls per step", wraps=("operator",))
    for operator in profile.operators:
        seconds = operator.seconds_per_step
        calls = f"{operator.calls_per_step:,.0f}"
        table.add_row(Text(operator.name), _format_ms(seconds), _format_share(seconds, profile), calls)
    # Operators that run in several threads at once may add up to more than the step.
    rest = profile.seconds_per_step - sum(operator.seconds_per_step for operator in profile.operators)
    if rest > 0:
        table.add_row(REST, _format_ms(rest), _format_share(rest, profile), UNKNOWN)
    return table


def _describe_warm_up(profile: StepProfile) -> str:
    """Describe the warm-up steps before the profiled ones. A very short run is profiled from its first step on."""
    num_before = profile.first_step - 1
    if not num_before:
        return "without warm-up: one-time costs are included"
    return f"after {format_count(num_before, 'warm-up step')}"


def _add_rest(profile: StepProfile) -> dict[str, float]:
    return {**profile.parts, BETWEEN_STEPS: max(profile.seconds_per_step - sum(profile.parts.values()), 0.0)}


def _format_ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.2f}"


def _format_share(seconds: float, profile: StepProfile) -> str:
    return f"{100 * seconds / profile.seconds_per_step:.1f} %"
