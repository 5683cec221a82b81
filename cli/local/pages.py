"""HTML pages that commands write: one file each, with its own styles and scripts, that needs no network."""

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

STYLE = Path(__file__).parent / "page.css"
"""Style of every page, before its own."""


def render_page(directory: Path, styles: Sequence[Path] = (), **values: object) -> str:
    """Render page.html of a directory, with its page.css. styles: before both. values: what the page shows, by name."""
    environment = Environment(
        loader=FileSystemLoader(directory),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    texts = [path.read_text(encoding="utf-8") for path in (*styles, STYLE, directory / "page.css")]
    return environment.get_template("page.html").render(styles=texts, **values)
