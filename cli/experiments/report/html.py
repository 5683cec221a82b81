"""HTML page of a report: a single file with its styles and plots, without scripts."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cli.experiments.report.content import Page

FILES = Path(__file__).parent / "page_files"


def render_html(page: Page) -> str:
    """Render the HTML page of a report."""
    environment = Environment(
        loader=FileSystemLoader(FILES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style = (FILES / "page.css").read_text(encoding="utf-8")
    return environment.get_template("page.html").render(page=page, style=style)
