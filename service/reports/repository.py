"""SQL statements on reports."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Select, Subquery, Text, and_, bindparam, case, cast, func, insert, literal, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, aliased

from service.database.base import JsonText
from service.store.models import Attempt, Metric, StreamPosition

Selection = TypeVar("Selection", bound="Select[*tuple[Any, ...]]")

_INSERT_METRICS = insert(Metric.__table__).values(report=bindparam("report", type_=JsonText))  # pyright: ignore
_ITEM = (
    literal('{"attempt":') + cast(Metric.attempt, Text) + literal(",") + func.substr(cast(Metric.report, Text), 2)
).label("item")
"""JSON of a report with the number of its attempt, which stands before the other members."""
_LENGTH = func.length(cast(Metric.report, Text)).label("length")
MAX_CURVE_CHARACTERS = 2**22
"""Approximate length of the reports of one page, enough for ten thousand ordinary steps. A trainer may report 16 kB for
each step, and whoever reads many of them at once should not take the memory of the service."""


@dataclass(frozen=True)
class MetricQuery:
    """Query for reports of a job with row numbers above `after`: at most `limit`, or all thinned to `max_points`."""

    kind: str | None = None
    attempt: int | None = None
    """Number of one attempt, all of whose reports count; None for the reports of all attempts that are not void."""
    after: int = 0
    limit: int = 1000
    max_points: int | None = None


@dataclass(frozen=True)
class Curve:
    """Reports as JSON, separated by commas; `next_after` is the row number to go on after, None on the last page."""

    items: str
    next_after: int | None


class ReportRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def get_acknowledged_seq(self, attempt_id: str, rank: int, stream: str) -> int:
        position = self._session.get(StreamPosition, (attempt_id, rank, stream))
        return position.acknowledged_seq if position else 0

    def lock_position(self, attempt_id: str, rank: int, stream: str) -> StreamPosition:
        """Return the position of a stream, created where it is new, and lock it until the transaction ends."""
        name = (attempt_id, rank, stream)
        position = self._session.get(StreamPosition, name, with_for_update=True)
        if position is None:
            try:
                with self._session.begin_nested():
                    position = StreamPosition(attempt_id=attempt_id, rank=rank, stream=stream, acknowledged_seq=0)
                    self._session.add(position)
            except IntegrityError:
                position = self._session.get_one(StreamPosition, name, with_for_update=True)
        return position

    def add_metrics(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows of `metrics` by their columns; `report` is JSON, which is stored as it is."""
        if rows:
            self._session.connection().execute(_INSERT_METRICS, rows)

    def read_curve(self, job_id: str, query: MetricQuery) -> Curve:
        """Read the reports that a query selects, in the order of arrival.

        There are fewer where they would be longer than MAX_CURVE_CHARACTERS, but at least one.
        """
        if query.max_points is not None:
            return self._read_thinned_curve(job_id, query, query.max_points)
        rows = _select_metrics(select(Metric.id, _LENGTH), job_id, query)
        rows = rows.order_by(Metric.id).limit(query.limit + 1).subquery()
        start = func.sum(rows.c.length).over(order_by=rows.c.id) - rows.c.length
        number = func.row_number().over(order_by=rows.c.id)
        places = select(rows.c.id, start.label("start"), number.label("number")).subquery()
        fits = and_(places.c.start < MAX_CURVE_CHARACTERS, places.c.number <= query.limit)
        last_id, newest_id = self._session.execute(
            select(func.max(case((fits, places.c.id))), func.max(places.c.id))
        ).one()
        if last_id is None:
            return Curve("", None)
        items = _select_metrics(select(Metric.id, _ITEM), job_id, query)
        text = self._join(items.where(Metric.id <= last_id).order_by(Metric.id))
        return Curve(text, last_id if last_id < newest_id else None)

    def _read_thinned_curve(self, job_id: str, query: MetricQuery, max_points: int) -> Curve:
        """Read evenly spaced reports, the last one included."""
        number, total = func.row_number().over(order_by=Metric.id), func.count().over()
        numbered = select(Metric.id, number.label("number"), total.label("total"))
        rows = _select_metrics(numbered, job_id, query).subquery()
        point = rows.c.number * max_points // rows.c.total
        previous_point = (rows.c.number - 1) * max_points // rows.c.total
        chosen = select(rows.c.id).where(point > previous_point)
        points = self._session.execute(
            select(Metric.id, _LENGTH).where(Metric.id.in_(chosen)).order_by(Metric.id)
        ).all()
        stride = -(-sum(length for _, length in points) // MAX_CURVE_CHARACTERS) or 1
        ids = [point_id for point_id, _ in points[::-1][::stride]]
        return Curve(self._join(select(Metric.id, _ITEM).where(Metric.id.in_(ids)).order_by(Metric.id)), None)

    def _join(self, items: "Select[int, str]") -> str:
        """Join the items, in their order.

        The database joins them, in code that leaves other threads of this process alone. Both SQLite and PostgreSQL
        aggregate the rows of a sorted subquery in its order.
        """
        joined = select(func.aggregate_strings(items.subquery().c.item, ","))
        return self._session.scalar(joined) or ""

    def get_last_report(self, job_id: str, kind: str) -> dict[str, Any] | None:
        """Return the newest report of one kind that is not void; None if absent."""
        query = _select_metrics(select(Metric.report), job_id, MetricQuery(kind))
        return self._session.scalar(query.order_by(Metric.id.desc()).limit(1))

    def list_attempts_with_start(self, job_id: str) -> list[Attempt]:
        """List the attempts of a job that have begun to train, in their order."""
        query = select(Attempt).where(Attempt.job_id == job_id, Attempt.start_step.is_not(None))
        return list(self._session.scalars(query.order_by(Attempt.number)))


def _select_metrics(selection: Selection, job_id: str, query: MetricQuery) -> Selection:
    """Restrict a selection to the reports that `query` allows, however many they are."""
    selection = selection.where(Metric.job_id == job_id, Metric.id > query.after)
    if query.kind is not None:
        selection = selection.where(Metric.kind == query.kind)
    if query.attempt is not None:
        return selection.where(Metric.attempt == query.attempt)
    last = _select_last_valid_steps(job_id)
    last_step = case((Metric.kind == "evaluation", last.c.evaluated_step), else_=last.c.step)
    return selection.outerjoin(last, last.c.attempt_id == Metric.attempt_id).where(
        or_(last_step.is_(None), Metric.step <= last_step)
    )


def _select_last_valid_steps(job_id: str) -> Subquery:
    """Select, for each attempt that a later one follows, the steps of its last valid step and evaluation.

    Both are null until a later attempt has begun to train.
    """
    earlier, later = aliased(Attempt), aliased(Attempt)
    return (
        select(
            earlier.id.label("attempt_id"),
            func.min(later.start_step).label("step"),
            func.min(later.evaluated_step).label("evaluated_step"),
        )
        .join(later, and_(later.job_id == earlier.job_id, later.number > earlier.number))
        .where(earlier.job_id == job_id)
        .group_by(earlier.id)
        .subquery()
    )
