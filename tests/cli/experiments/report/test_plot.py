"""Plots of a report: what tells their series apart, and that they are the same each time."""

import re

from cli.experiments.report.plot import Axis, Point, Series, Style, make_plot


def draw(num_series: int, style: Style, name: str = "many") -> str:
    series = [
        Series(f"method {number}", [Point(1.0, 1.0), Point(2.0, 2.0)], style, number) for number in range(num_series)
    ]
    return make_plot(name, "Many", "many", Axis("x"), Axis("y"), series).svg


def test_thirty_two_series_have_each_their_own_colour_and_mark() -> None:
    svg = draw(32, "points")
    marks = re.findall(r'<use xlink:href="#(\w+)" x="[^"]*" y="[^"]*" style="fill: (#\w+)', svg)
    # Each has a mark at both points, and one in the legend.
    assert (len(marks), len(set(marks))) == (3 * 32, 32)
    shapes = dict(re.findall(r'<path id="(\w+)" d="([^"]*)"', svg))
    assert len({(shapes[mark], colour) for mark, colour in marks}) == 32
    assert svg == draw(32, "points")
    # In one page the marks of a plot are its own.
    assert not {mark for mark, _ in marks} & set(re.findall(r'xlink:href="#(\w+)"', draw(32, "points", "other")))


def test_sixteen_lines_without_marks_have_each_their_own_colour_and_dashes() -> None:
    def list_lines(num_series: int, style: Style) -> list[str]:
        return re.findall(r'style="(fill: none;[^"]*stroke: #(?!e1e5eb)[^"]*)"', draw(num_series, style))

    lines = list_lines(16, "line")
    assert (len(lines), len(set(lines))) == (2 * 16, 16)
    # Dashes are those of perfect scaling, which has the colour of its method.
    assert not set(lines) & set(list_lines(16, "dashed"))
