"""Settings and final figures of many jobs, by columns, for a scatter of one against another."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Text, cast, select
from sqlalchemy.orm import Session

from dlrm.record.intervals import estimate_mean
from service.compare.figures import get_better, get_figure, list_compared
from service.compare.groups import flatten_settings, fold_sections, get_seed, make_key, number_groups
from service.schemas import ResultColumn, ResultMean, ResultTable
from service.store.job_rows import JobRow
from service.store.models import JobDocument
from service.store.states import JobState

EXPLAINING = ("train_auc", "best_possible_auc", "noise_scale", "num_samples", "best_step")
"""Figures of the table that explain the compared ones."""
MAX_DOCUMENT_CHARACTERS = 2**24
"""Characters of the documents that one table is made of."""
MAX_COLUMNS = 200
"""Largest number of settings and labels of a table."""
MAX_TEXT_CHARACTERS = 100
ROWS_AT_ONCE = 20
"""Documents that are read at once: each may have a megabyte."""


@dataclass(frozen=True)
class _Entry:
    """A job of the table, with all its settings."""

    row: JobRow
    settings: dict[str, Any]
    metrics: Mapping[str, float | None]


def make_table(session: Session, rows: Sequence[JobRow], *, has_more: bool) -> ResultTable:
    """Make the table of jobs, at least one of any number, as far as their documents are not too long together.

    has_more: whether further jobs match.
    """
    entries: list[_Entry] = []
    num_characters = 0
    for row, spec, metrics in _read_documents(session, rows):
        num_characters += len(spec)
        if entries and num_characters > MAX_DOCUMENT_CHARACTERS:
            break
        entries.append(_Entry(row, flatten_settings(json.loads(spec)), metrics))
    all_settings = fold_sections([entry.settings for entry in entries])
    all_labels = [entry.row.labels for entry in entries]
    settings, labels = _list_differing(all_settings), _list_differing(all_labels)
    groups = _number_groups(entries, settings, labels)
    columns = [
        *(ResultColumn(kind="label", name=name, values=[own.get(name) for own in all_labels]) for name in labels),
        *(
            ResultColumn(kind="setting", name=name, values=[_shorten(own.get(name)) for own in all_settings])
            for name in settings
        ),
    ]
    return ResultTable(
        ids=[entry.row.id for entry in entries],
        names=[entry.row.name for entry in entries],
        owners=[entry.row.owner for entry in entries],
        states=[entry.row.state for entry in entries],
        groups=groups,
        columns=[*columns[:MAX_COLUMNS], *_make_figures(entries, groups)],
        num_equal_settings=len(set[str]().union(*all_settings)) - len(settings),
        num_left_out=max(len(columns) - MAX_COLUMNS, 0),
        has_more=has_more or len(entries) < len(rows),
    )


def _list_differing(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the names whose values are not the same in all rows; a row that lacks a name has None there."""
    names: dict[str, None] = {}
    for row in rows[1:]:
        if row != rows[0]:
            names |= {name: None for name in {**rows[0], **row} if row.get(name) != rows[0].get(name)}
    return list(names)


def _number_groups(entries: Sequence[_Entry], settings: Sequence[str], labels: Sequence[str]) -> list[int]:
    """Number the groups of jobs that differ in their seeds alone, and return the number of each job."""
    keys = [
        make_key(
            {name: entry.settings.get(name) for name in settings},
            {name: value for name in labels if (value := entry.row.labels.get(name)) is not None},
        )
        for entry in entries
    ]
    return number_groups(keys, [get_seed(entry.settings, entry.row.labels) for entry in entries])


def _make_figures(entries: Sequence[_Entry], groups: Sequence[int]) -> list[ResultColumn]:
    """Make the columns of the figures that some jobs have."""
    columns: list[ResultColumn] = []
    for name in (*list_compared(entry.metrics for entry in entries), *EXPLAINING):
        values = [
            get_figure(name, entry.metrics, entry.row.started_at, entry.row.finished_at)
            if entry.row.state == JobState.SUCCEEDED
            else None
            for entry in entries
        ]
        if any(value is not None for value in values):
            means = _list_means(values, groups)
            columns.append(ResultColumn(kind="figure", name=name, better=get_better(name), values=values, means=means))
    return columns


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
