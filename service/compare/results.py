"""Settings and final figures of many jobs, by columns, for a scatter of one against another."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import Text, cast, select
from sqlalchemy.orm import Session

from dlrm.record.intervals import estimate_mean
from service.compare.figures import BADNESS, get_figure
from service.compare.groups import flatten_settings, make_key
from service.schemas import ResultColumn, ResultMean, ResultTable
from service.store.job_rows import JobRow
from service.store.models import JobDocument
from service.store.states import JobState

FIGURES = (*BADNESS, "train_auc", "best_possible_auc", "noise_scale", "num_samples", "best_step")
"""Figures of the table: the compared ones, and some that explain them."""
MAX_DOCUMENT_CHARACTERS = 2**24
"""Characters of the documents that one table is made of."""
MAX_COLUMNS = 200
"""Largest number of settings and labels of a table."""
MAX_TEXT_CHARACTERS = 100
ROWS_AT_ONCE = 20
"""Documents that are read at once: each may have a megabyte."""


@dataclass
class _Table:
    """Table of jobs that grows by rows; columns begin with nulls for the rows before them."""

    rows: list[JobRow] = field(default_factory=list[JobRow])
    groups: list[int] = field(default_factory=list[int])
    numbers: dict[str, int] = field(default_factory=dict[str, int])
    """Numbers of the groups by what their jobs have in common."""
    settings: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    labels: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    figures: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in FIGURES})

    def add(self, row: JobRow, document: Mapping[str, Any], metrics: Mapping[str, float | None]) -> None:
        settings = flatten_settings(document)
        self.groups.append(self.numbers.setdefault(make_key(settings, row.labels), len(self.numbers)))
        flat = {name: _shorten(value) for name, value in settings.items()}
        for columns, values in ((self.settings, flat), (self.labels, row.labels)):
            for name in values:
                columns.setdefault(name, [None] * len(self.rows))
            for name, column in columns.items():
                column.append(values.get(name))
        for name, column in self.figures.items():
            has_succeeded = row.state == JobState.SUCCEEDED
            column.append(get_figure(name, metrics, row.started_at, row.finished_at) if has_succeeded else None)
        self.rows.append(row)


def make_table(session: Session, rows: Sequence[JobRow], *, has_more: bool) -> ResultTable:
    """Make the table of jobs, at least one of any number, as far as their documents are not too long together.

    has_more: whether further jobs match.
    """
    table, num_characters = _Table(), 0
    for row, spec, metrics in _read_documents(session, rows):
        num_characters += len(spec)
        if table.rows and num_characters > MAX_DOCUMENT_CHARACTERS:
            break
        table.add(row, json.loads(spec), metrics)
    kinds: dict[Literal["label", "setting"], dict[str, list[Any]]] = {"label": table.labels, "setting": table.settings}
    differing = [
        ResultColumn(kind=kind, name=name, values=values)
        for kind, columns in kinds.items()
        for name, values in columns.items()
        if any(value != values[0] for value in values)
    ]
    num_differing_settings = sum(1 for column in differing if column.kind == "setting")
    figures = [
        ResultColumn(kind="figure", name=name, values=values, means=_list_means(values, table.groups))
        for name, values in table.figures.items()
        if any(value is not None for value in values)
    ]
    return ResultTable(
        ids=[row.id for row in table.rows],
        names=[row.name for row in table.rows],
        owners=[row.owner for row in table.rows],
        states=[row.state for row in table.rows],
        groups=table.groups,
        columns=[*differing[:MAX_COLUMNS], *figures],
        num_equal_settings=len(table.settings) - num_differing_settings,
        num_left_out=max(len(differing) - MAX_COLUMNS, 0),
        has_more=has_more or len(table.rows) < len(rows),
    )


def _list_means(values: Sequence[float | None], groups: Sequence[int]) -> list[ResultMean]:
    """List the means over the groups with two or more values."""
    by_group: dict[int, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        if value is not None:
            by_group.setdefault(group, []).append(value)
    means: list[ResultMean] = []
    for group, own in by_group.items():
        estimate = estimate_mean(own)
        if estimate.low is not None and estimate.high is not None:
            means.append(
                ResultMean(
                    group=group, mean=estimate.value, low=estimate.low, high=estimate.high, num_jobs=estimate.num_seeds
                )
            )
    return means


def _read_documents(
    session: Session, rows: Sequence[JobRow]
) -> Iterator[tuple[JobRow, str, Mapping[str, float | None]]]:
    """Yield the jobs in order with the text of the document and the metrics of each, few at a time."""
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[start : start + ROWS_AT_ONCE]
        query = select(JobDocument.job_id, cast(JobDocument.spec, Text), JobDocument.metrics)
        found = session.execute(query.where(JobDocument.job_id.in_([row.id for row in part])))
        documents = {job_id: (spec, metrics) for job_id, spec, metrics in found}
        for row in part:
            if row.id in documents:
                yield row, *documents[row.id]


def _shorten(value: Any) -> Any:
    """Return a value for a table: lists and objects as JSON text, and long texts cut."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= MAX_TEXT_CHARACTERS else text[: MAX_TEXT_CHARACTERS - 1] + "…"
