"""Files of a report: the HTML page, with its styles and plots and without scripts, the Markdown, and its plots."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from cli.experiments.report.content import Block, Notes, Page, Paragraph, Section, Table
from cli.local.errors import BadInputError
from cli.local.outputs import check_output, render_page, write_output

PAGE_FILES = Path(__file__).parent / "page_files"


@dataclass(frozen=True)
class ReportFiles:
    """Files that are asked for; None: not written."""

    output: Path | None
    """HTML page."""
    markdown: Path | None
    """Markdown; without a file it is relative to the current directory."""
    plots: Path | None
    """Directory of the plots; None: beside the file of the Markdown."""

    def check(self) -> None:
        """Check that they can be written, before anything is computed. Raises BadInputError."""
        check_output("--output", self.output)
        check_output("--markdown", self.markdown)
        if self.plots is not None and self.plots.exists() and not self.plots.is_dir():
            raise BadInputError(f"--plots {self.plots}: not a directory (valid: a directory, which may be new)")

    @property
    def plot_directory(self) -> Path | None:
        """Directory of the plots; None if they are not written."""
        if self.plots is not None or self.markdown is None:
            return self.plots
        return self.markdown.with_name(f"{self.markdown.stem}-plots")

    def list_written(self) -> list[Path]:
        """List the files, and the directory of plots, that are written."""
        return [path for path in (self.output, self.markdown, self.plot_directory) if path is not None]


def write_report(page: Page, files: ReportFiles) -> str:
    """Write the files, and return the Markdown. Raises BadInputError, with the option, if it cannot."""
    directory = files.plot_directory
    relative: str | None = None
    if directory is not None:
        _write_plots(page, directory)
        start = Path.cwd() if files.markdown is None else files.markdown.absolute().parent
        relative = Path(os.path.relpath(directory.absolute(), start)).as_posix()
    text = render_markdown(page, relative)
    if files.output is not None:
        write_output(files.output, render_page(PAGE_FILES, page=page), "--output")
    if files.markdown is not None:
        write_output(files.markdown, text, "--markdown")
    return text


def _write_plots(page: Page, directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"--plots {directory}: {error.strerror}") from None
    for plot in page.list_plots():
        write_output(directory / f"{plot.name}.svg", plot.svg + "\n", "--plots")


def render_markdown(page: Page, plots: str | None) -> str:
    """Render the Markdown of a report. plots: relative path of the directory with its plots; None: without plots."""
    parts = [f"# {_escape(page.title)}", _escape(page.lead)]
    for section in page.sections:
        parts.extend(_render_section(section, plots))
    return "\n\n".join(parts) + "\n"


def _render_section(section: Section, plots: str | None) -> list[str]:
    blocks = [text for block in section.blocks if (text := _render_block(block, plots))]
    if not section.is_folded:
        return [f"## {_escape(section.heading)}", *blocks]
    return [f"<details>\n<summary>{_escape(section.heading)}</summary>", *blocks, "</details>"]


def _render_block(block: Block, plots: str | None) -> str:
    if isinstance(block, Paragraph):
        return _escape(block.text)
    if isinstance(block, Notes):
        return "\n".join(f"- {_escape(item)}" for item in block.sentences)
    if isinstance(block, Table):
        return _render_table(block)
    if plots is None:
        return ""
    return f"![{_escape(block.title)}]({quote(f'{plots}/{block.name}.svg')})"


def _render_table(table: Table) -> str:
    rules = [":---" if heading in table.texts else "---:" for heading in table.headings]
    head, *rows = [[_escape(text) for text in line] for line in (table.headings, *table.rows)]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, rules, *rows)]
    return f"**{_escape(table.caption)}**\n\n" + "\n".join(lines)


def _escape(text: str) -> str:
    """Escape what Markdown, or HTML in it, would take for more than text."""
    one_line = re.sub(r"\s+", " ", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", one_line)
