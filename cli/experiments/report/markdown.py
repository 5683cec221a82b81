"""Markdown of a report, with plots as files beside it."""

import re
from collections.abc import Sequence
from urllib.parse import quote

from cli.experiments.report.content import Block, Notes, Page, Paragraph, Section, Table


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
    rules = ["---:" if column.is_number else ":---" for column in table.columns]
    lines = [[_escape(column.heading) for column in table.columns], rules]
    lines += [[_escape(text) for text in row] for row in table.rows]
    return f"**{_escape(table.caption)}**\n\n" + "\n".join(map(_join, lines))


def _join(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    """Escape what Markdown, or HTML in it, would take for more than text."""
    one_line = re.sub(r"\s+", " ", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", one_line)
