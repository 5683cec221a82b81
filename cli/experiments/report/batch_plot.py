"""Plot of a final metric against the batch, a line for each method."""

from collections.abc import Callable, Sequence

from cli.experiments.report.content import Plot
from cli.experiments.report.numbers import MainRow
from cli.experiments.report.plot import Axis, Point, Series, draw_plot
from cli.experiments.report.scales import make_batch_scale, make_linear_scale
from cli.experiments.report.targets import name_series
from cli.experiments.trials.intervals import Estimate


def draw_batch_plot(
    name: str, title: str, axis: str, rows: Sequence[MainRow], metric: Callable[[MainRow], Estimate | None]
) -> Plot | None:
    """Draw a metric with its intervals against the batch; None if all results are of one batch.

    Results of a batch that grows are no points of it.

    name: see `Plot.name`. axis: title of the axis of the metric.
    """
    lines: dict[str, list[Point]] = {}
    for row in rows:
        estimate, batch = metric(row), row.cell.batch.constant_size
        if estimate is not None and batch is not None:
            point = Point(batch, estimate.value, estimate.low, estimate.high)
            lines.setdefault(name_series(row.cell), []).append(point)
    points = [point for line in lines.values() for point in line]
    if len({point.x for point in points}) < 2:
        return None
    ends = [value for point in points for value in (point.y, point.low, point.high) if value is not None]
    return draw_plot(
        name,
        title,
        f"{axis} against the batch, of {', '.join(lines)}; the numbers are in a table.",
        Axis("batch, samples", make_batch_scale([point.x for point in points])),
        Axis(axis, make_linear_scale(ends)),
        [Series(method, line, colour=number) for number, (method, line) in enumerate(lines.items())],
    )
