"""All SQL about reports."""

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, aliased

from service.reports.models import Metric, StreamPosition


class ReportRepository:
    def __init__(self, session: Session) -> None:
        self._session = session

    def acknowledged_seq(self, attempt_id: str, rank: int, stream: str) -> int:
        position = self._session.get(StreamPosition, (attempt_id, rank, stream))
        return position.acknowledged_seq if position else 0

    def lock_position(self, attempt_id: str, rank: int, stream: str) -> StreamPosition:
        """The position of a stream, made where it is new; nobody else moves it until the transaction ends."""
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

    def add_metric(self, metric: Metric) -> None:
        self._session.add(metric)

    def metrics(self, job_id: str, *, kind: str | None, attempt: int | None, after: int, limit: int) -> list[Metric]:
        """Reports in the order they came, those behind the row number `after` alone."""
        query = select(Metric).where(Metric.job_id == job_id, Metric.id > after).order_by(Metric.id).limit(limit)
        if kind is not None:
            query = query.where(Metric.kind == kind)
        if attempt is not None:
            query = query.where(Metric.attempt == attempt)
        return list(self._session.scalars(query))

    def thinned_metrics(
        self, job_id: str, *, kind: str | None, attempt: int | None, after: int, max_points: int
    ) -> list[Metric]:
        """Of all these reports at most `max_points`, evenly spread, the last one among them."""
        numbered = select(
            Metric,
            func.row_number().over(order_by=Metric.id).label("number"),
            func.count().over().label("total"),
        ).where(Metric.job_id == job_id, Metric.id > after)
        if kind is not None:
            numbered = numbered.where(Metric.kind == kind)
        if attempt is not None:
            numbered = numbered.where(Metric.attempt == attempt)
        rows = numbered.subquery()
        place = rows.c.number * max_points // rows.c.total
        place_before = (rows.c.number - 1) * max_points // rows.c.total
        metric = aliased(Metric, rows)
        return list(self._session.scalars(select(metric).where(place > place_before).order_by(rows.c.id)))
