"""Plots as SVG, which stand in a page or in a file of their own: no scripts, no fonts, light and dark."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from cli.experiments.report.content import Plot
from cli.experiments.report.scales import Scale

WIDTH, HEIGHT = 480, 320
"""Size in units of the drawing: on a phone 12 units of text are 9 pixels."""
LEFT, RIGHT, TOP, BOTTOM = 76, 12, 12, 46
LEGEND_ROW = 18
LETTER_WIDTH = 8.2
"""Approximate width of a letter of the legend."""
NUM_COLOURS = 8
Style = Literal["points", "marks", "line", "dashed"]
MARKED: tuple[Style, ...] = ("points", "marks")
"""Styles that have a mark at each point."""
_LIGHT = ("#2f5bd0", "#c4441c", "#1b7f4b", "#8a3fb0", "#9a6700", "#0b7a8c", "#b0286b", "#59606e")
_DARK = ("#8ea6ff", "#ff9a70", "#6fd39a", "#d39cf2", "#e8bf5a", "#66cfe0", "#ff8fc0", "#a9b2c3")
"""Colours of series, on a light and on a dark background."""


def _make_colour_rules(colours: Sequence[str], back: str, axis: str, ink: str, rule: str) -> str:
    rules = [
        f".plot .back{{fill:{back}}}.plot text{{fill:{axis}}}.plot .name{{fill:{ink}}}.plot .rule{{stroke:{rule}}}",
        *(
            f".plot .c{number}{{stroke:{colour};fill:{colour}}}.plot .line.c{number}{{fill:none}}"
            for number, colour in enumerate(colours)
        ),
    ]
    return "".join(rules)


# Plain colours, no variables: programs that show pictures know few of the newer styles.
_STYLE = (
    '.plot{font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}'
    ".plot .line{fill:none;stroke-width:1.8}.plot .dashed{stroke-dasharray:5 4;stroke-width:1.4}"
    ".plot .dotted{stroke-dasharray:1.5 2.5}"
    + _make_colour_rules(_LIGHT, "#ffffff", "#626b7d", "#1b1f2a", "#e1e5eb")
    + f"@media (prefers-color-scheme:dark){{{_make_colour_rules(_DARK, '#1a1f29', '#98a2b5', '#e6e9f0', '#2c3340')}}}"
)


@dataclass(frozen=True)
class Point:
    """Point of a series, with the bounds of its interval where it has one."""

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
    scale: Scale


def draw_plot(name: str, title: str, description: str, x: Axis, y: Axis, series: Sequence[Series]) -> Plot:
    """Draw a plot. name: see `Plot.name`."""
    rows = _lay_legend([line.name for line in series])
    height = HEIGHT + LEGEND_ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {WIDTH} {height}" '
        # Without a size of its own a picture in Markdown fills the page.
        f'width="{1.5 * WIDTH:.0f}" height="{1.5 * height:.0f}" role="img" '
        f'aria-labelledby="{name}-title" aria-describedby="{name}-description">',
        f"<style>{_STYLE}</style>",
        f'<title id="{name}-title">{escape(title)}</title>',
        f'<desc id="{name}-description">{escape(description)}</desc>',
        # A file of its own may stand on a page whose colours are not those of the reader's system.
        f'<path class="back" d="M0 0h{WIDTH}v{height}H0z"/>',
        *_draw_axes(x, y),
        *(part for line in series for part in _draw_series(line, x.scale, y.scale)),
        *_draw_legend(rows, series),
        "</svg>",
    ]
    return Plot(name, title, description, "\n".join(parts))


def _place_x(scale: Scale, value: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * scale.place(value)


def _place_y(scale: Scale, value: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * scale.place(value)


def _draw_axes(x: Axis, y: Axis) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts: list[str] = []
    for value, label in y.scale.ticks:
        place = _place_y(y.scale, value)
        parts.append(f'<path class="rule" d="M{LEFT} {place:.1f}H{right}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{place + 4:.1f}" text-anchor="end">{escape(label)}</text>')
    for value, label in x.scale.ticks:
        place = _place_x(x.scale, value)
        parts.append(f'<path class="rule" d="M{place:.1f} {TOP}V{bottom}"/>')
        parts.append(f'<text x="{place:.1f}" y="{bottom + 17}" text-anchor="middle">{escape(label)}</text>')
    middle = (TOP + bottom) / 2
    parts.append(f'<text x="{(LEFT + right) / 2:.1f}" y="{bottom + 36}" text-anchor="middle">{escape(x.title)}</text>')
    parts.append(
        f'<text transform="translate(13 {middle:.1f}) rotate(-90)" text-anchor="middle">{escape(y.title)}</text>'
    )
    return parts


def _draw_series(series: Series, x: Scale, y: Scale) -> list[str]:
    colour = f"c{series.colour % NUM_COLOURS}"
    points = sorted(series.points, key=lambda point: point.x)
    places = [(_place_x(x, point.x), _place_y(y, point.y)) for point in points]
    path = "M" + "L".join(f"{left:.1f} {top:.1f}" for left, top in places)
    is_joined = series.style != "marks" and len(places) > 1
    parts = [f'<path class="{_make_line_class(series)}" d="{path}"/>'] if is_joined else []
    if series.style not in MARKED:
        return parts
    for point, (left, top) in zip(points, places, strict=True):
        if point.low is not None and point.high is not None:
            low, high = _place_y(y, point.low), _place_y(y, point.high)
            bar = f"M{left:.1f} {low:.1f}V{high:.1f}M{left - 4:.1f} {low:.1f}h8M{left - 4:.1f} {high:.1f}h8"
            parts.append(f'<path class="line {colour}" d="{bar}"/>')
        parts.append(_draw_mark(series.colour, left, top))
    return parts


def _draw_mark(number: int, left: float, top: float) -> str:
    """Draw a mark whose shape tells the series too, for readers who see no colours."""
    shapes = (
        "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
        "m-3.7-3.7h7.4v7.4h-7.4z",
        "m0-5l4.6 8.4h-9.2z",
        "m0-5.2l5.2 5.2l-5.2 5.2l-5.2-5.2z",
    )
    colour = f"c{number % NUM_COLOURS}"
    # Each round of the colours has other shapes.
    shape = shapes[(number + number // NUM_COLOURS) % len(shapes)]
    return f'<path class="{colour}" d="M{left:.1f} {top:.1f}{shape}z"/>'


def _make_line_class(series: Series) -> str:
    """Make the class of a line: dashed as its style says, else dotted in every second round of the colours."""
    is_second = series.colour // NUM_COLOURS % 2 == 1
    stroke = " dashed" if series.style == "dashed" else " dotted" if is_second else ""
    return f"line{stroke} c{series.colour % NUM_COLOURS}"


def _lay_legend(names: Sequence[str]) -> list[list[tuple[int, float]]]:
    """Lay the names in rows that fit the width: the number of each series, and its place."""
    rows: list[list[tuple[int, float]]] = []
    end = float(WIDTH)
    for number, name in enumerate(names):
        width = 42 + LETTER_WIDTH * len(name)
        if not rows or end + width > WIDTH - RIGHT:
            rows.append([])
            end = 12.0
        rows[-1].append((number, end))
        end += width
    return rows


def _draw_legend(rows: Sequence[Sequence[tuple[int, float]]], series: Sequence[Series]) -> list[str]:
    parts: list[str] = []
    for row_number, row in enumerate(rows):
        top = HEIGHT + LEGEND_ROW * row_number + 4
        for number, left in row:
            line = series[number]
            if line.style != "marks":
                parts.append(f'<path class="{_make_line_class(line)}" d="M{left:.1f} {top}h20"/>')
            if line.style in MARKED:
                parts.append(_draw_mark(line.colour, left + 10, top))
            parts.append(f'<text class="name" x="{left + 25:.1f}" y="{top + 4}">{escape(line.name)}</text>')
    return parts
