"""HTML page that `dlrm data inspect --html` writes: a single file that contains its styles and scripts."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from service.cli.inspection import SERIOUS, Report, all_tables, rows_heading, table_bytes, what_was_looked_at
from service.cli.text_format import percent, quantity
from service.sizes import size_in_bytes

HERE = Path(__file__).parent / "report"
UPLOT = Path(__file__).parents[1] / "dashboard" / "static" / "vendor" / "uplot"


def report_page(report: Report, source: str) -> str:
    """Render the HTML page of `report`. source: the inspected data, as the user named it."""
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("page.html").render(
        percent=percent,
        quantity=quantity,
        size=size_in_bytes,
        report=report,
        source=source,
        looked_at=what_was_looked_at(report),
        serious=SERIOUS,
        all_tables=all_tables(report),
        table_bytes=table_bytes,
        rows_heading=rows_heading,
        styles=[_text(UPLOT / "uPlot.min.css"), _text(HERE / "page.css")],
        scripts=[_text(UPLOT / "uPlot.iife.min.js"), _text(HERE / "page.js")],
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
