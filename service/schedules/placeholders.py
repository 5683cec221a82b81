"""Placeholders in the document of a schedule, and what stands for them at one time that is due.

`{due}`: the time that is due. `{previous_job}`: the id of the schedule's last job that has succeeded.
`{day}`, `{hour}`: only in entries of `data.train` and `data.eval`. Such an entry is repeated for every day, or hour in
UTC, that has ended since the time of that job; without such a job for the last one. All but `{previous_job}` take a
format of strftime, as in `{day:%Y/%m/%d}`. Without a previous job, `run.warm_start` from it is left out.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, cast

from dlrm.config import ConfigError, FieldError

FORMATS = {"due": "%Y-%m-%d", "day": "%Y-%m-%d", "hour": "%Y-%m-%dT%H"}
"""Formats of placeholders that name none."""
MAX_PERIODS = 1000
"""Largest number of days or hours of one job, as many as a document may name patterns."""
_PERIOD = re.compile(r"\{(day|hour)(?::([^{}]*))?\}")
_SINGLE = re.compile(r"\{(due|previous_job)(?::([^{}]*))?\}")
_PREVIOUS = "{previous_job}"


class NothingNewError(Exception):
    """Error raised where a job would have no day and no hour of rows."""


@dataclass(frozen=True)
class Moment:
    """A time that is due, and the job before it."""

    due_at: datetime
    zone: tzinfo
    previous_job_id: str | None = None
    """Last job that has succeeded; None before the first one."""
    previous_due_at: datetime | None = None
    """Time up to which its rows reach; None for the period before the last one that has ended."""

    def list_periods(self, kind: str) -> list[datetime]:
        """List the beginnings of the days or hours that have ended since the previous job, oldest first."""
        step = timedelta(days=1) if kind == "day" else timedelta(hours=1)
        end = self._begin_period(self.due_at, kind)
        start = self._begin_period(self.previous_due_at, kind) if self.previous_due_at else end - step
        # Days and hours of the clock on the wall: one is 23 or 25 hours long where the clock is changed.
        periods = [start + number * step for number in range(min(MAX_PERIODS + 1, max(0, (end - start) // step)))]
        if len(periods) > MAX_PERIODS:
            raise ConfigError([FieldError("data.train", f"names more than {MAX_PERIODS:,} times of {{{kind}}}")])
        return periods

    def _begin_period(self, time: datetime, kind: str) -> datetime:
        # An hour is one of UTC: in other zones one comes twice a year.
        local = time.astimezone(self.zone if kind == "day" else UTC).replace(tzinfo=None)
        whole_hour = local.replace(minute=0, second=0, microsecond=0)
        return whole_hour.replace(hour=0) if kind == "day" else whole_hour


def fill_document(document: Mapping[str, Any], moment: Moment) -> dict[str, Any]:
    """Return a job document in which nothing is left to fill in.

    Raises NothingNewError, and ConfigError if a placeholder is in a wrong place.
    """
    filled = dict(document)
    if isinstance(filled.get("data"), dict):
        data = dict(cast("dict[str, Any]", filled["data"]))
        for name in ("train", "eval"):
            if isinstance(data.get(name), list):
                data[name] = [entry for pattern in data[name] for entry in _repeat(pattern, moment)]
        filled["data"] = data
    run = filled.get("run")
    if moment.previous_job_id is None and isinstance(run, dict):
        start = cast("dict[str, Any]", run).get("warm_start")
        if isinstance(start, dict) and cast("dict[str, Any]", start).get("from") == _PREVIOUS:
            filled["run"] = {**run, "warm_start": None}
    return _fill(filled, moment, ())


def uses_previous(document: Mapping[str, Any]) -> bool:
    """Whether a document names the previous job anywhere."""
    return any(match[1] == "previous_job" for match in _SINGLE.finditer(json.dumps(document)))


def _repeat(pattern: Any, moment: Moment) -> Iterator[Any]:
    found = {match[1] for match in _PERIOD.finditer(pattern)} if isinstance(pattern, str) else set[str]()
    if not found:
        yield pattern
        return
    kind = min(found, key=("hour", "day").index)
    periods = moment.list_periods(kind)
    if not periods:
        raise NothingNewError(f"no {kind} has ended since {moment.previous_job_id or 'the last job'}")
    for period in periods:
        yield _PERIOD.sub(_format(period), pattern)


def _fill(node: Any, moment: Moment, path: tuple[str, ...]) -> Any:
    if isinstance(node, dict):
        members = cast("dict[str, Any]", node)
        return {name: _fill(member, moment, (*path, name)) for name, member in members.items()}
    if isinstance(node, list):
        return [_fill(member, moment, (*path, str(number))) for number, member in enumerate(cast("list[Any]", node))]
    if not isinstance(node, str):
        return node
    if match := _PERIOD.search(node):
        message = f"{match[0]} stands for several times"
        raise ConfigError([FieldError(".".join(path), message, "{due}, or an entry of data.train or data.eval")])
    due = _format(moment.due_at.astimezone(moment.zone))
    return _SINGLE.sub(
        lambda match: due(match) if match[1] == "due" else moment.previous_job_id or "",
        node,
    )


def _format(time: datetime) -> Callable[[re.Match[str]], str]:
    return lambda match: time.strftime(match[2] or FORMATS[match[1]])
