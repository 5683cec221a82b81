"""Forms of the tables that commands print."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.local.console import console_on, escape_unprintable, say

Item = TypeVar("Item", bound=BaseModel)


def make_table(
    *headings: str, left: Collection[str] = (), wraps: Collection[str] | None = None, collapse_padding: bool = False
) -> Table:
    """Return a table with a heading for each column, and no lines.

    left: columns of text, which are not justified to the right; the first one always is text. wraps: columns whose
    cells may be wrapped; None for all columns of text: half a number would be another one.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=collapse_padding)
    for number, heading in enumerate(headings):
        is_text = number == 0 or heading in left
        no_wrap = not is_text if wraps is None else heading not in wraps
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=no_wrap, overflow="fold")
    return table


def make_facts_table(facts: Iterable[tuple[str, str | Text | None]]) -> Table:
    """Return a table with a line for each fact that is known: its name and its value."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in facts:
        if value:
            table.add_row(name, Text(escape_unprintable(value, keep="\n")) if isinstance(value, str) else value)
    return table


def print_section(console: Console, heading: str, *content: Table | Text | str) -> None:
    """Print a heading after an empty line, and what belongs to it."""
    console.print(f"\n[bold]{heading}[/bold]", highlight=False)
    for part in content:
        console.print(part, soft_wrap=not isinstance(part, Table))


def print_result(result: Mapping[str, Any], table: Table, *, as_json: bool) -> None:
    """Print the result of a command to stdout, as a line of JSON or as a table."""
    if as_json:
        typer.echo(json.dumps(result))
    else:
        console_on().print(table)


def print_items(
    items: Iterable[Item], make_table: Callable[[Iterable[Item]], Table], *, as_json: bool, secret: str | None = None
) -> None:
    """Print the items of a list to stdout, as a line of JSON each or as a table. secret: field that is left out."""
    if as_json:
        for item in items:
            typer.echo(item.model_dump_json(exclude={secret} if secret else None))
    else:
        console_on().print(make_table(items))


def print_made(made: BaseModel, description: str, secret: str | None, *, as_json: bool) -> None:
    """Print what was made: its secret alone to stdout, or a line of JSON with it."""
    if as_json:
        typer.echo(made.model_dump_json())
    else:
        say(f"{description}; this is its secret, shown only now:")
        typer.echo(secret)


def cell(text: str) -> Text:
    """Return a cell of text from elsewhere, whose unprintable characters are escaped."""
    return Text(escape_unprintable(text))


def cut_cell(text: str) -> Text:
    """Return a cell that is cut if it is too long, not wrapped; its column shrinks first.

    `no_wrap` on the column instead would cut the other columns too.
    """
    return Text(escape_unprintable(text), no_wrap=True, overflow="ellipsis")


def dim(text: str) -> Text:
    """Return text that explains the cells before it."""
    return Text(text, style="dim")
