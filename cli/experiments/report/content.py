"""Content of a report, which its HTML and its Markdown both show: texts, tables of texts, and plots."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cli.local.console import UNKNOWN


@dataclass(frozen=True)
class Paragraph:
    """Sentences."""

    text: str


@dataclass(frozen=True)
class Notes:
    """List of remarks."""

    sentences: Sequence[str]


@dataclass(frozen=True)
class Table:
    """Table of texts, of numbers as they are shown."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    """Cells of each row, as many as headings; the first cell names the row."""
    texts: Collection[str] = ("method",)
    """Headings of the columns with text; numbers, in all others, stand at the right."""

    def drop_unknown_columns(self) -> "Table":
        """Return the table without the columns in which no row has a value; all of them if there is no row."""
        kept = [
            number
            for number in range(len(self.headings))
            if not self.rows or any(row[number] not in ("", UNKNOWN) for row in self.rows)
        ]
        rows = [[row[number] for number in kept] for row in self.rows]
        return replace(self, headings=[self.headings[number] for number in kept], rows=rows)


@dataclass(frozen=True)
class Plot:
    """Plot with its name and its content in words."""

    name: str
    """Name in letters, digits and hyphens: the name of its file, and the beginning of its ids."""
    title: str
    description: str
    """Content of the plot in words."""
    draw: Callable[[], str]
    """Draws the plot as SVG."""

    @cached_property
    def svg(self) -> str:
        """Plot as SVG, drawn when it is first needed: Markdown without files of plots needs none."""
        return self.draw()


Block = Paragraph | Notes | Table | Plot


@dataclass(frozen=True)
class Section:
    """Part of a report under one heading."""

    heading: str
    blocks: Sequence[Block]
    is_folded: bool = False
    """Whether only the heading is shown until a reader opens it."""


@dataclass(frozen=True)
class Page:
    """Whole content of a report."""

    title: str
    lead: str
    """Sentences under the title: what the report is of."""
    sections: Sequence[Section]

    def list_plots(self) -> list[Plot]:
        """List all plots, in their order."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Plot)]
