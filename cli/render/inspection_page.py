"""HTML page that `dlrm data inspect --html` writes: a single file that contains its styles and scripts."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cli.local.text_format import format_percent, format_quantity
from cli.render.inspection import (
    SERIOUS,
    Report,
    describe_rows_read,
    format_rows_heading,
    format_total_size,
    get_table_bytes,
)
from hostinfo.sizes import format_size

HERE = Path(__file__).parent / "inspection_page_files"
UPLOT = Path(__file__).parents[2] / "service" / "dashboard" / "static" / "vendor" / "uplot"


def render_report_page(report: Report, source: str) -> str:
    """Render the HTML page of `report`. source: the inspected data, as the user named it."""
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("page.html").render(
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
        styles=[_read_text(UPLOT / "uPlot.min.css"), _read_text(HERE / "page.css")],
        scripts=[_read_text(UPLOT / "uPlot.iife.min.js"), _read_text(HERE / "page.js")],
    )


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
