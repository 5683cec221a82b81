"""Reports of `dlrm data inspect`: text on the terminal, and an HTML page, a file with its own styles and scripts."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.local.console import escape_unprintable, format_percent, format_quantity
from cli.local.outputs import render_page
from cli.render.tables import cell, cut_cell, make_facts_table, make_table, print_section
from dlrm.config import format_count
from hostinfo.sizes import format_size

Report = Mapping[str, Any]
"""JSON form of `dlrm.data.inspect.report.report.Report`, or of a part of it."""

SERIOUS = frozenset({"leak", "one_class"})
"""Kinds of warnings that are shown in red."""
PAGE_FILES = Path(__file__).parent / "inspection_page_files"
UPLOT = Path(__file__).parents[2] / "service" / "dashboard" / "static" / "vendor" / "uplot"


def print_report(console: Console, report: Report) -> None:
    console.print(_make_facts_table(report))
    if report["dense"]:
        print_section(console, "dense columns", _make_dense_table(report["dense"]))
    if report["categorical"]:
        print_section(console, "categorical columns", _make_categorical_table(report["categorical"]))
        heading = f"tables: rows by min_count, {format_total_size(report)}"
        print_section(console, heading, _make_sizes_table(report), *_list_targets(report), *_list_hashes(report))
    print_section(console, "warnings", *(format_warnings(report) or ["none"]))


def describe_rows_read(report: Report) -> str:
    """Describe how many rows were read: all of them, or a sample."""
    num_rows, num_read = report["num_rows"], report["num_rows_looked_at"]
    if num_read + report["num_bad_rows"] >= num_rows:
        return f"all {format_count(num_rows, 'row')}"
    share = format_percent(num_read / num_rows)
    return f"a sample of {num_read:,} of {format_count(num_rows, 'row')} ({share}), spread evenly; --rows reads more"


def format_warnings(report: Report) -> list[Text]:
    """Format the warnings, one line each; serious ones begin in red."""
    return [
        Text.assemble(
            (warning["kind"].replace("_", " "), "bold red" if warning["kind"] in SERIOUS else "bold yellow"),
            escape_unprintable(f" {warning['column']}" if warning["column"] else ""),
            escape_unprintable(f": {warning['message']}"),
        )
        for warning in report["warnings"]
    ]


def _make_facts_table(report: Report) -> Table:
    num_bad, faults = report["num_bad_rows"], map(escape_unprintable, report["faults"])
    facts = {
        "read": describe_rows_read(report),
        "label rate": format_percent(report["label_rate"]),
        "by tenth of the rows": "  ".join(format_percent(part["label_rate"]) for part in report["parts"]),
        "bad rows": "\n".join([f"{num_bad:,} left out; the first:", *faults]) if num_bad else None,
    }
    return make_facts_table(facts.items())


def _make_dense_table(columns: Sequence[Report]) -> Table:
    headings = ("column", "missing", "distinct", "min", "1 %", "median", "99 %", "max", "mean", "AUC")
    table = make_table(*headings, collapse_padding=True)
    for column in columns:
        quantiles = [column["quantiles"].get(share) for share in ("0.01", "0.5", "0.99")]
        table.add_row(
            cell(column["name"]),
            format_percent(column["missing_share"]),
            f"{column['num_distinct']:,}",
            *map(_format_short, [column["min"], *quantiles, column["max"], column["mean"]]),
            _format_auc(column),
        )
    return table


def _make_categorical_table(columns: Sequence[Report]) -> Table:
    headings = ("column", "missing", "distinct", "seen once", "top 10", "top 100", "top 1000", "AUC", "most frequent")
    table = make_table(*headings, left=("most frequent",), collapse_padding=True)
    for column in columns:
        table.add_row(
            cell(f"{column['name']}{' (lists)' if column['is_multi_hot'] else ''}"),
            format_percent(column["missing_share"]),
            f"{column['num_distinct']:,}",
            f"{column['num_seen_once']:,}",
            *(format_percent(column["covered_by"][top]) for top in ("10", "100", "1000")),
            _format_auc(column),
            cut_cell(", ".join(value for value, _ in column["top_values"][:3])),
        )
    return table


def _make_sizes_table(report: Report) -> Table:
    columns: Sequence[Report] = report["categorical"]
    counts = ["rows" if size["min_count"] is None else str(size["min_count"]) for size in columns[0]["tables"]]
    table = make_table("column", *counts, "bytes", collapse_padding=True)
    for column in columns:
        if column["target"] is not None:
            continue
        rows = [f"{entry['num_rows']:,}" for entry in column["tables"]]
        table.add_row(cell(column["name"]), *rows, format_size(get_table_bytes(column, report["min_count"])))
    return table


def _list_targets(report: Report) -> list[Text]:
    """List the columns of sequences, a line each with the column whose table they read."""
    return [
        cell(f"{column['name']}: read from the table of {column['target']}")
        for column in report["categorical"]
        if column["target"] is not None
    ]


def _list_hashes(report: Report) -> list[Text]:
    """List the columns that had better be hashed, a line each with its reason."""
    return [
        cell(f"{column['name']}: hash_size {column['hash_size']:,}: {column['why_hash']}")
        for column in report["categorical"]
        if column["hash_size"]
    ]


def _format_short(value: float | None) -> str:
    """Format a number with a short exponent, such as 1.235e9."""
    return re.sub(r"e([+-])0*", lambda match: f"e{match[1].strip('+')}", format_quantity(value))


def format_rows_heading(table: Report) -> str:
    return "rows" if table["min_count"] is None else f"min_count {table['min_count']}"


def get_table_bytes(column: Report, min_count: int) -> int:
    """Return the bytes of a column's embedding table: the existing one, or the one that the job's `min_count` gives.

    A column of sequences has none, and 0 bytes.
    """
    sizes = [table["num_bytes"] for table in column["tables"] if table["min_count"] in (None, min_count)]
    return 0 if column["target"] is not None else sizes[0]


def format_total_size(report: Report) -> str:
    """Format the total size of all embedding tables, with the settings on which it depends."""
    total = sum(get_table_bytes(column, report["min_count"]) for column in report["categorical"])
    is_counted = any(table["min_count"] for column in report["categorical"] for table in column["tables"])
    settings = f"min_count {report['min_count']}, " if is_counted else ""
    return f"{format_size(total)} at {settings}embedding_dim {report['embedding_dim']}"


def _format_auc(column: Report) -> str:
    return "" if column["auc"] is None else f"{column['auc']:.4f}"


def render_report_page(report: Report, source: str) -> str:
    """Render the HTML page of `report`. source: the inspected data, as the user named it."""
    return render_page(
        PAGE_FILES,
        [UPLOT / "uPlot.min.css"],
        percent=format_percent,
        quantity=format_quantity,
        size=format_size,
        report=report,
        source=source,
        rows_read=describe_rows_read(report),
        serious=SERIOUS,
        total_size=format_total_size(report),
        table_bytes=get_table_bytes,
        rows_heading=format_rows_heading,
        scripts=[path.read_text(encoding="utf-8") for path in (UPLOT / "uPlot.iife.min.js", PAGE_FILES / "page.js")],
    )
