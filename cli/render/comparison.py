"""Tables of a comparison of jobs."""

import json
from collections.abc import Iterator
from string import ascii_uppercase
from typing import Any

from rich.table import Table

from cli.local.console import format_number
from cli.render.job_tables import format_state
from cli.render.tables import cell, cut_cell, make_facts_table, make_table
from service.client import Comparison


def make_compared_jobs_table(comparison: Comparison) -> Table:
    """Return a table with a line for each job, by groups: jobs of one letter differ in their seeds alone."""
    headings = ("", "id", "name", "seed", "state")
    table = make_table(*headings, left=("id", "name", "state"), wraps=("name",), collapse_padding=True)
    for job in sorted(comparison.jobs, key=lambda job: job.group):
        letter = ascii_uppercase[job.group]
        table.add_row(letter, cell(job.id), cut_cell(job.name), str(job.seed), format_state(job.state))
    return table


def make_settings_table(comparison: Comparison) -> Table:
    """Return a table of the settings in which groups differ, with the value of each."""
    return make_facts_table(
        (setting.field, _list_by_letter([_format(value) for value in setting.values]))
        for setting in comparison.settings
    )


def make_figures_table(comparison: Comparison) -> Table:
    """Return a table of the figures, with the interval of each group; the best mean is marked."""

    def list_values() -> Iterator[tuple[str, str]]:
        for figure in comparison.figures:
            texts: list[str] = []
            for number, value in enumerate(figure.values):
                text = "-" if value is None else format_number(value.mean, figure.name)
                if value is not None and value.low is not None and value.high is not None:
                    low, high = (format_number(end, figure.name) for end in (value.low, value.high))
                    text += f"  {low} to {high} (95 %, {value.num_jobs} {value.source})"
                texts.append(text + ("  best" if number == figure.best else ""))
            yield figure.name, _list_by_letter(texts)

    return make_facts_table(list_values())


def _list_by_letter(texts: list[str]) -> str:
    return "\n".join(f"{letter}  {text}" for letter, text in zip(ascii_uppercase, texts, strict=False))


def _format(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
