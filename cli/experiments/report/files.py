"""Files of a report: the page, the Markdown, and its plots."""

import os
from dataclasses import dataclass
from pathlib import Path

from cli.experiments.report.content import Page
from cli.experiments.report.html import render_html
from cli.experiments.report.markdown import render_markdown
from cli.local.errors import BadInputError
from dlrm.record import write_atomically


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
        for option, path in (("--output", self.output), ("--markdown", self.markdown)):
            if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
                raise BadInputError(
                    f"{option} {path}: not a file that can be written (valid: a file in an existing directory)"
                )
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
    """Write the files, and return the Markdown. Raises BadInputError, with the option, for one that cannot be."""
    directory = files.plot_directory
    relative: str | None = None
    if directory is not None:
        _write_plots(page, directory)
        start = Path.cwd() if files.markdown is None else files.markdown.absolute().parent
        relative = Path(os.path.relpath(directory.absolute(), start)).as_posix()
    text = render_markdown(page, relative)
    if files.output is not None:
        _write(files.output, render_html(page), "--output")
    if files.markdown is not None:
        _write(files.markdown, text, "--markdown")
    return text


def _write_plots(page: Page, directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"--plots {directory}: {error.strerror}") from None
    for plot in page.list_plots():
        _write(directory / f"{plot.name}.svg", plot.svg + "\n", "--plots")


def _write(path: Path, text: str, option: str) -> None:
    try:
        write_atomically(path, text)
    except OSError as error:
        raise BadInputError(f"{option} {path}: {error.strerror}") from None
