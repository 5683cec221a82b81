"""Plots of a report: what tells their series apart."""

import re

from cli.experiments.report.plot import Axis, Point, Series, Style, draw_plot
from cli.experiments.report.scales import make_batch_scale


def draw(num_series: int, style: Style) -> str:
    axis = Axis("x", make_batch_scale([1.0, 2.0]))
    series = [
        Series(f"method {number}", [Point(1.0, 1.0), Point(2.0, 2.0)], style, number) for number in range(num_series)
    ]
    return draw_plot("many", "Many", "many", axis, axis, series).svg


def test_thirty_two_series_have_each_their_own_colour_and_mark() -> None:
    marks = re.findall(r'<path class="(c\d)" d="M[\d.]+ [\d.]+(m[^"]+)z"/>', draw(32, "points"))
    # Each has a mark at both points, and one in the legend.
    assert (len(marks), len(set(marks))) == (3 * 32, 32)


def test_sixteen_lines_without_marks_have_each_their_own_colour_and_dashes() -> None:
    classes = re.findall(r'<path class="(line[^"]+)"', draw(16, "line"))
    assert (len(classes), len(set(classes))) == (2 * 16, 16)
    # Dashes are those of perfect scaling, which has the colour of its method.
    assert not set(classes) & set(re.findall(r'<path class="(line[^"]+)"', draw(16, "dashed")))
