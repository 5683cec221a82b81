"""Tables of schedules."""

from collections.abc import Iterable
from datetime import datetime

from rich.table import Table

from cli.render.tables import cell, cut_cell, make_facts_table, make_table
from service.client import Schedule


def make_schedules_table(schedules: Iterable[Schedule]) -> Table:
    """Return a table with a line for each schedule, its next time and the result of the last one."""
    headings = ("id", "name", "next", "last result")
    table = make_table(*headings, left=headings, wraps=("name", "last result"), collapse_padding=True)
    for schedule in schedules:
        following = "paused" if schedule.next_at is None else f"{schedule.next_at:%m-%d %H:%M}"
        result = cut_cell(schedule.last_result or "none yet")
        table.add_row(cell(schedule.id), cut_cell(schedule.name), following, result)
    return table


def make_schedule_table(schedule: Schedule) -> Table:
    """Return a table of what is known of a schedule, its document left out."""
    return make_facts_table(
        [
            ("id", schedule.id),
            ("name", schedule.name),
            ("owner", schedule.owner),
            ("cron", f"{schedule.cron} ({schedule.time_zone})"),
            ("next", "paused" if schedule.next_at is None else _format(schedule.next_at)),
            ("last due", _format(schedule.last_due_at)),
            ("last result", schedule.last_result),
            ("last job", schedule.last_job_id),
            ("previous job", schedule.previous_job_id),
            ("rows until", _format(schedule.previous_due_at)),
        ]
    )


def _format(time: datetime | None) -> str | None:
    return None if time is None else f"{time:%Y-%m-%d %H:%M} UTC"
