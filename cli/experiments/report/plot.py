"""Plots as SVG, which stand in a page or in a file of their own: no scripts, no fonts, light and dark."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal

from cli.experiments.report.content import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 480, 320
"""Size in units of the drawing, without its legend: on a phone 12 units of text are 9 pixels."""
LEGEND_ROW = 18
LETTER_WIDTH = 7.5
"""Approximate width of a letter of the legend."""
MAX_TICKS = 7
Kind = Literal["linear", "count", "log", "narrow log", "batch"]
"""Kind of an axis: numbers, large whole numbers, a logarithmic one, one of numbers within a decade or so, or one
labelled with the batches of the marks."""
Style = Literal["points", "marks", "line", "dashed"]
MARKED: tuple[Style, ...] = ("points", "marks")
"""Styles that have a mark at each point."""
_MARKS = ("o", "s", "^", "D")
_COLOURS = {
    "#2f5bd0": "#8ea6ff",
    "#c4441c": "#ff9a70",
    "#1b7f4b": "#6fd39a",
    "#8a3fb0": "#d39cf2",
    "#9a6700": "#e8bf5a",
    "#0b7a8c": "#66cfe0",
    "#b0286b": "#ff8fc0",
    "#59606e": "#a9b2c3",
}
"""Colours of series on a light background, each with its colour on a dark one."""
_BACK, _AXIS, _INK, _RULE = "#ffffff", "#626b7d", "#1b1f2a", "#e1e5eb"
_DARK = {**_COLOURS, _BACK: "#1a1f29", _AXIS: "#98a2b5", _INK: "#e6e9f0", _RULE: "#2c3340"}
_DARK_RULES = "".join(
    f'[style*="{part}: {light}"]{{{part}:{dark}!important}}'
    for light, dark in _DARK.items()
    for part in ("fill", "stroke")
)
# Plain colours, no variables: programs that show pictures know few of the newer styles.
_STYLE = (
    '.plot text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif!important}'
    f"@media (prefers-color-scheme:dark){{{_DARK_RULES}}}"
)
_PARAMETERS: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 12,
    "text.color": _INK,
    "axes.labelcolor": _AXIS,
    "xtick.color": _AXIS,
    "ytick.color": _AXIS,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _RULE,
    "figure.facecolor": _BACK,
    "axes.facecolor": _BACK,
    **{f"axes.spines.{side}": False for side in ("left", "right", "top", "bottom")},
}


@dataclass(frozen=True)
class Point:
    """Point of a series, with the bounds of its interval if it has one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """Points of one name."""

    name: str
    points: Sequence[Point]
    style: Style = "points"
    """`points`: marks joined by a line; `marks`: marks alone; `line`, `dashed`: a line alone, such as a formula's."""
    colour: int = 0
    """Number of its colour and of the shape of its marks."""


@dataclass(frozen=True)
class Axis:
    """Axis with its title."""

    title: str
    kind: Kind = "linear"


def make_plot(name: str, title: str, description: str, x: Axis, y: Axis, series: Sequence[Series]) -> Plot:
    """Make a plot. name: see `Plot.name`."""
    return Plot(name, title, description, lambda: _draw_svg(name, title, description, x, y, series))


def _draw_svg(name: str, title: str, description: str, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    # Not before it is needed: other commands run without the library.
    from matplotlib import style
    from matplotlib.figure import Figure

    num_columns = max(1, int(WIDTH / (42 + LETTER_WIDTH * max(len(line.name) for line in series))))
    height = HEIGHT + LEGEND_ROW * math.ceil(len(series) / num_columns)
    drawn = StringIO()
    # The salt makes ids that are the same each time, and other ones in each plot of a page.
    with style.context({**_PARAMETERS, "svg.hashsalt": name}, after_reset=True):
        figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
        axes = figure.add_subplot()
        _set_axis(axes, "x", x, series)
        _set_axis(axes, "y", y, series)
        for line in series:
            _draw_series(axes, line)
        figure.legend(loc="outside lower center", ncols=num_columns, frameon=False)
        figure.savefig(drawn, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return _finish_svg(drawn.getvalue(), name, title, description, height)


def _set_axis(axes: "Axes", side: Literal["x", "y"], axis: Axis, series: Sequence[Series]) -> None:
    from matplotlib import ticker

    axes.set(**{f"{side}label": axis.title, f"{side}scale": "linear" if axis.kind in ("linear", "count") else "log"})
    drawn = axes.xaxis if side == "x" else axes.yaxis
    drawn.set_minor_locator(ticker.NullLocator())
    if axis.kind == "linear":
        axes.ticklabel_format(axis=side, style="plain", useOffset=False)
    elif axis.kind == "narrow log":
        drawn.set_major_locator(ticker.MaxNLocator(MAX_TICKS))
        drawn.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    elif axis.kind == "batch":
        # A line without marks, such as a formula's, has points between the batches.
        batches = sorted({point.x for line in series if line.style in MARKED for point in line.points})
        shown = batches[:: math.ceil(len(batches) / MAX_TICKS)]
        drawn.set_ticks(shown, [f"{batch:,.0f}" for batch in shown])
    else:
        drawn.set_major_formatter(ticker.EngFormatter(sep=""))
        if axis.kind == "log":
            drawn.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0), numticks=MAX_TICKS))


def _draw_series(axes: "Axes", series: Series) -> None:
    """Draw a series. Shapes of marks, and dots in a second round of colours, identify it without colours."""
    number_of_round, number = divmod(series.colour, len(_COLOURS))
    colour = list(_COLOURS)[number]
    mark = _MARKS[(series.colour + number_of_round) % len(_MARKS)] if series.style in MARKED else ""
    joined = "--" if series.style == "dashed" else ":" if number_of_round % 2 else "-"
    points = sorted(series.points, key=lambda point: point.x)
    axes.plot(
        [point.x for point in points],
        [point.y for point in points],
        color=colour,
        marker=mark,
        markersize=7,
        markeredgecolor="none",
        linestyle="" if series.style == "marks" else joined,
        label=series.name,
    )
    for point in points:
        if point.low is not None and point.high is not None:
            ends = [[point.y - point.low], [point.high - point.y]]
            axes.errorbar([point.x], [point.y], yerr=ends, fmt="none", ecolor=colour, capsize=4)


def _finish_svg(drawn: str, name: str, title: str, description: str, height: int) -> str:
    """Return a drawing with a name that programs read aloud, a style for dark backgrounds, and no ids without use."""
    body = re.sub(r'<g id="[^"]*"(/?)>', r"<g\1>", drawn[drawn.index(">", drawn.index("<svg")) + 1 :])
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" class="plot" '
        # Without a size of its own a picture in Markdown fills the page.
        f'viewBox="0 0 {WIDTH} {height}" width="{1.5 * WIDTH:.0f}" height="{1.5 * height:.0f}" role="img" '
        f'aria-labelledby="{name}-title" aria-describedby="{name}-description">\n'
        f'<title id="{name}-title">{escape(title)}</title>\n'
        f'<desc id="{name}-description">{escape(description)}</desc>\n<style>{_STYLE}</style>'
    )
    return head + body.replace(">*{", ">.plot *{").rstrip()
