"""Section of a report about the course of training: plots of metrics against samples, a line for each method."""

import re
from collections.abc import Mapping, Sequence

from cli.experiments.report.content import Block, Paragraph, Plot, Section
from cli.experiments.report.courses import Course, CoursePoint
from cli.experiments.report.plot import Axis, Point, Series, draw_plot
from cli.experiments.report.scales import make_count_scale, make_linear_scale
from cli.experiments.sweep.trials import format_settings, format_value

MAX_MARKS = 25
"""Number of evaluations up to which each has a mark."""
_METRICS = (
    ("auc", "AUC", "AUC on evaluation rows"),
    ("log_loss", "Log-loss", "log-loss on evaluation rows"),
    ("train_auc_gap", "Gap of AUC to training rows", "gap of AUC to training rows"),
)
"""Metrics of `Course`, each with the title of its plot and that of its axis."""


def make_course_section(courses: Sequence[Course]) -> Section:
    """Make the section of the courses: for each combination of compared values a plot of each metric."""
    heading = "Course of training"
    if not courses:
        return Section(heading, [Paragraph("No trial has evaluations in its course.")])
    groups: dict[str, list[Course]] = {}
    for course in courses:
        groups.setdefault(format_settings(course.cell.compared), []).append(course)
    suffixes = [_make_suffix(group[0]) for group in groups.values()]
    if len(set(suffixes)) < len(suffixes):
        suffixes = [f"-{number}" for number in range(1, len(groups) + 1)]
    # A method has the same colour in all plots, also where another one has no result.
    colours = {method: number for number, method in enumerate(dict.fromkeys(course.cell.method for course in courses))}
    plots = [
        plot
        for (values, group), suffix in zip(groups.items(), suffixes, strict=True)
        for metric in _METRICS
        if (plot := _draw_course(group, colours, *metric, values, suffix)) is not None
    ]
    note = (
        "Means over the trials of the first table, of the model in training, whose last evaluation need not be that of "
        "the kept model. The curve of a seed is linear between two evaluations; a mean ends with the shortest one."
    )
    blocks: list[Block] = [*plots, Paragraph(note)]
    return Section(heading, blocks)


def _draw_course(
    courses: Sequence[Course], colours: Mapping[str, int], metric: str, title: str, axis: str, values: str, suffix: str
) -> Plot | None:
    lines: dict[str, Sequence[CoursePoint]] = {course.cell.method: getattr(course, metric) for course in courses}
    points = [point for line in lines.values() for point in line]
    if len({samples for samples, _ in points}) < 2:
        return None
    most = max(map(len, lines.values()))
    where = f", {values}" if values else ""
    return draw_plot(
        f"{metric.replace('_', '-')}-by-samples{suffix}",
        f"{title} by samples{where}",
        f"{axis} against training samples{where}, of {', '.join(lines)}; means over seeds.",
        Axis("samples", make_count_scale([samples for samples, _ in points])),
        Axis(axis, make_linear_scale([value for _, value in points])),
        [
            Series(name, [Point(*point) for point in line], "points" if most <= MAX_MARKS else "line", colours[name])
            for name, line in lines.items()
            if line
        ],
    )


def _make_suffix(course: Course) -> str:
    words = "-".join(map(format_value, course.cell.compared.values()))
    letters = re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-")
    return f"-{letters}" if letters else ""
