"""Files that commands write: checks before, whole at once, and HTML pages, which need no network and no other file."""

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cli.local.errors import BadInputError
from dlrm.record import write_atomically

STYLE = Path(__file__).parent / "page.css"
"""Style of every page, before its own."""


def check_output(option: str, path: Path | None) -> None:
    """Check that the file of an option can be written, if there is one. Raises BadInputError."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise BadInputError(f"{option} {path}: not a file that can be written (valid: a file in an existing directory)")


def write_output(path: Path, text: str, option: str = "") -> None:
    """Write a file so that it is there whole or not at all. Raises BadInputError, with the option that names it."""
    try:
        write_atomically(path, text)
    except OSError as error:
        raise BadInputError(f"{option} {path}: {error.strerror}".lstrip()) from None


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
