"""Draw docs/pictures/evidence.svg from the table of docs/evidence.md: `python docs/pictures/make_evidence.py`."""

import re
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

HERE = Path(__file__).parent
INK, QUIET = "#1f4e79", "#777777"
DIFFERENCE = re.compile(r"([+-]\d\.\d+) ± (\d\.\d+)")


def read_table(page: str) -> list[tuple[str, float, float]]:
    """Read the label, the difference and half of its interval from each row of the table."""
    rows, data = [], ""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and (found := DIFFERENCE.fullmatch(cells[3])):
            data = data if cells[0] == "the same" else cells[0]
            rows.append((f"{data}\n{cells[2]}", float(found[1]), float(found[2])))
    return rows


def draw(rows: list[tuple[str, float, float]]) -> Figure:
    """Draw one interval for each row, the first one on top."""
    figure = Figure(figsize=(9, 0.62 * len(rows) + 0.9), layout="constrained")
    axes = figure.subplots()
    places = range(len(rows), 0, -1)
    axes.errorbar([row[1] for row in rows], places, xerr=[row[2] for row in rows], fmt="o", color=INK, capsize=4)
    axes.axvline(0, color=QUIET, linewidth=1)
    axes.axvspan(-0.0005, 0, color=INK, alpha=0.12, linewidth=0)
    axes.set_yticks(list(places), [row[0] for row in rows], fontsize=9)
    axes.set_xlabel("AUC, large less small batch (shaded: a loss of at most 0.0005)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.3)
    return figure


if __name__ == "__main__":
    # Text stays text, and the same table gives the same file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "evidence"})
    figure = draw(read_table((HERE.parent / "evidence.md").read_text()))
    figure.savefig(HERE / "evidence.svg", metadata={"Date": None}, transparent=False)
