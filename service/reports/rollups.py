"""Levels of a curve: each row summarises the steps of one bucket, and is made from the level below.

A row depends on the level below alone, whatever the order and number of pushes. A curve of any length is read from the
level with the widest buckets that its points allow, so that it takes some thousand rows at most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import TextClause, text
from sqlalchemy.orm import Session

from service.http.paging import MAX_SERIAL
from service.reports.attempt_ranges import AttemptRange
from service.store.metric_tables import (
    BUCKET_FACTOR,
    EVALUATION_NUMBERS,
    EVALUATIONS,
    ROLLUPS,
    STEP_COUNTS,
    STEP_NUMBERS,
    STEPS,
    TIME,
)

MIN_BUCKETS = 64
"""Buckets of a level, from level 2 on, that the steps of an attempt must fill before it has the level."""
GSNR = "gsnr"
KEY = ("job_id", "attempt", "level", "bucket", "part")
Columns = dict[str, list[Any]]
"""Values of points by column, such as `last_step` and `loss_max`."""
_OF_ATTEMPT = "job_id = :job_id AND attempt = :attempt"


@dataclass(frozen=True, eq=False)
class _Source:
    """Table whose rows are summarised, as SQL.

    Rows have a position: the number of the step, counted from 0, or of the bucket. `start` and `end` are positions.
    """

    table: str
    is_chosen: str
    position: str
    is_last: str
    """Condition that a row `r` has the last step of a group `g`."""
    first_step: str
    last_step: str
    num_reports: str
    """Expression of the number of reports of a group."""
    statistics: dict[str, str]
    """Expressions of the statistics of a number of a group, by name."""
    suffix: str
    """End of the names of columns with values of the last step."""


def _make_report_source(table: str) -> _Source:
    return _Source(
        table=table,
        is_chosen=f"{_OF_ATTEMPT} AND step > :start AND step <= :end",
        position="(step - 1)",
        is_last="r.step = g.last_step",
        first_step="step",
        last_step="step",
        num_reports="count(*)",
        statistics={
            "min": "min({0})",
            "max": "max({0})",
            "mean": "sum(CAST({0} AS DOUBLE PRECISION)) / count({0})",
            "count": "count({0})",
        },
        suffix="",
    )


_STEPS, _EVALUATIONS = _make_report_source(STEPS.name), _make_report_source(EVALUATIONS.name)
_LEVELS = _Source(
    table=ROLLUPS.name,
    is_chosen=f"{_OF_ATTEMPT} AND level = :level AND bucket >= :start AND bucket < :end",
    position="bucket",
    is_last="r.level = :level AND r.bucket = (g.last_step - 1) / :bucket_steps AND r.last_step = g.last_step",
    first_step="first_step",
    last_step="last_step",
    num_reports="sum(num_reports)",
    statistics={
        "min": "min({0}_min)",
        "max": "max({0}_max)",
        "mean": "sum({0}_mean * {0}_count) / sum({0}_count)",
        "count": "sum({0}_count)",
    },
    suffix="_last",
)


@dataclass(frozen=True)
class PointRange:
    """Points of one attempt, of `point_steps` steps each, after step `after`, with which a point ends."""

    own: AttemptRange
    point_steps: int
    after: int = 0


def compute_point_steps(num_steps: int, resolution: int) -> int:
    """Return the number of steps of a point, a power of two, so that `resolution` points hold `num_steps` steps."""
    return 1 << max(0, -(-num_steps // resolution) - 1).bit_length()


class RollupRepository:
    """SQL statements on the levels of curves, and on the points of curves."""

    def __init__(self, session: Session) -> None:
        self._connection = session.connection()

    def update(self, job_id: str, attempt: int, first_step: int, last_step: int, num_levels: int) -> None:
        """Make the rows of all buckets that hold some of the steps from `first_step` to `last_step`.

        num_levels: number of levels that the attempt has.
        """
        level = 1
        while level == 1 or last_step >= MIN_BUCKETS * BUCKET_FACTOR**level:
            self._make_level(job_id, AttemptRange(attempt), level, first_step if level <= num_levels else 0, last_step)
            level += 1

    def cut(self, job_id: str, own: AttemptRange) -> None:
        """Divide the buckets of an attempt in which its valid steps end into two parts.

        Their rows go first: a part without any report gets no row, and would leave the one of before.
        """
        query = text(f"DELETE FROM {ROLLUPS.name} WHERE {_OF_ATTEMPT} AND level = :level AND bucket = :bucket")
        for level in range(1, self.count_levels(job_id, own.attempt) + 1):
            bucket = _find_position(own.last_step, BUCKET_FACTOR**level)
            values = {"job_id": job_id, "attempt": own.attempt, "level": level, "bucket": bucket}
            self._connection.execute(query, values)
            self._make_level(job_id, own, level, own.last_step, own.last_step)

    def count_levels(self, job_id: str, attempt: int) -> int:
        query = text(f"SELECT max(level) FROM {ROLLUPS.name} WHERE {_OF_ATTEMPT}")
        return self._connection.scalar(query, {"job_id": job_id, "attempt": attempt}) or 0

    def find_last_step(self, job_id: str, own: AttemptRange) -> int:
        """Return the last reported step of a range; 0 if absent."""
        query = text(
            f"SELECT last_step FROM {ROLLUPS.name} WHERE {_OF_ATTEMPT} AND level = 1 AND bucket <= :bucket "
            "AND last_step <= :last_step ORDER BY bucket DESC, part DESC LIMIT 1"
        )
        values = {"job_id": job_id, "attempt": own.attempt, "last_step": own.last_step}
        return self._connection.scalar(query, values | {"bucket": _find_position(own.last_step, BUCKET_FACTOR)}) or 0

    def read_evaluations(self, job_id: str, names: Sequence[str], chosen: PointRange) -> Columns:
        """Read points of evaluations, in their order, as `read_steps` does for steps."""
        return self._read(_EVALUATIONS, job_id, names, chosen, 0)

    def read_steps(self, job_id: str, names: Sequence[str], chosen: PointRange, min_level: int) -> Columns:
        """Read points of steps, in their order: the last step, and the statistics and last value of each number.

        min_level: lowest level that may be read; level 0 are the reports themselves.
        """
        wanted = (chosen.point_steps.bit_length() - 1) // (BUCKET_FACTOR.bit_length() - 1)
        level = max(min_level, min(wanted, self.count_levels(job_id, chosen.own.attempt)))
        return self._read(_LEVELS if level else _STEPS, job_id, names, chosen, level)

    def _read(self, source: _Source, job_id: str, names: Sequence[str], chosen: PointRange, level: int) -> Columns:
        bucket_steps, last_step = BUCKET_FACTOR**level, chosen.own.last_step
        values = {
            "job_id": job_id,
            "attempt": chosen.own.attempt,
            "level": level,
            "bucket_steps": bucket_steps,
            "start": _find_start(chosen.after, bucket_steps),
            "end": _find_position(last_step, bucket_steps) + 1 if level else last_step,
            "last_step": last_step,
            "width": max(1, chosen.point_steps // bucket_steps),
        }
        result = self._connection.execute(_make_query(source, tuple(names)), values)
        rows = result.all()
        return {name: [row[number] for row in rows] for number, name in enumerate(result.keys())}

    def _make_level(self, job_id: str, own: AttemptRange, level: int, first_step: int, last_step: int) -> None:
        """Make the rows of a level for the buckets that hold some of the steps from `first_step` to `last_step`."""
        bucket_steps, below_steps = BUCKET_FACTOR**level, BUCKET_FACTOR ** (level - 1)
        before = _find_position(first_step, bucket_steps) * bucket_steps
        values = {
            "job_id": job_id,
            "attempt": own.attempt,
            "new_level": level,
            "level": level - 1,
            "bucket_steps": below_steps,
            "start": _find_start(before, below_steps),
            "end": min((_find_position(last_step, bucket_steps) + 1) * BUCKET_FACTOR, MAX_SERIAL),
            "last_valid_step": own.last_step,
            "width": BUCKET_FACTOR,
        }
        self._connection.execute(_make_insert(_STEPS if level == 1 else _LEVELS), values)


def _find_position(step: int, width: int) -> int:
    return max(0, step - 1) // width


def _find_start(after: int, width: int) -> int:
    """Return the position at which the steps after a bucket begin. Step 0 counts to the first bucket."""
    return after // width if after else -1


def _list_statistics(source: _Source, names: Sequence[str], statistics: Sequence[str]) -> dict[str, str]:
    """List the expressions of statistics by the names of their columns."""
    rolled = [name for name in names if name in STEP_NUMBERS or name in EVALUATION_NUMBERS]
    return {f"{name}_{kind}": source.statistics[kind].format(name) for name in rolled for kind in statistics}


def _select_groups(source: _Source, columns: Mapping[str, str], keys: Sequence[str]) -> str:
    """Make the SQL that groups the chosen rows by `keys`."""
    groups = ", ".join([*keys, *(f"{expression} AS {name}" for name, expression in columns.items())])
    numbers = ", ".join(str(number) for number in range(1, 1 + len(keys)))
    return f"SELECT {groups} FROM {source.table} WHERE {source.is_chosen} GROUP BY {numbers}"


@lru_cache(maxsize=256)
def _make_query(source: _Source, names: tuple[str, ...]) -> TextClause:
    """Make the query of points: the last step, the statistics of each number, and its value at the last step."""
    columns = _list_statistics(source, names, ("min", "max", "mean"))
    bounded = replace(source, is_chosen=f"{source.is_chosen} AND {source.last_step} <= :last_step")
    last = f"max({source.last_step})"
    groups = _select_groups(bounded, {"last_step": last, **columns}, [f"{source.position} / :width AS point"])
    lasts = [f"{_find_last(source, name)} AS {name}_last" for name in names]
    shown = ", ".join(["g.last_step", *(f"g.{name}" for name in columns), *lasts])
    return text(f"SELECT {shown} FROM ({groups}) AS g ORDER BY g.last_step")


def _find_last(source: _Source, name: str) -> str:
    """Make the expression of a value at the last step of a group.

    A look-up for each group: a planner that takes the groups for few joins them with all rows.
    """
    is_last = f"r.job_id = :job_id AND r.attempt = :attempt AND {source.is_last}"
    return f"(SELECT r.{name}{source.suffix} FROM {source.table} AS r WHERE {is_last})"


@cache
def _make_insert(source: _Source) -> TextClause:
    """Make the statement that makes the rows of a level from the rows of the level below, or from the reports.

    SQLite needs a condition before ON CONFLICT, which it takes for a part of a join otherwise.
    """
    columns = {
        "first_step": f"min({source.first_step})",
        "last_step": f"max({source.last_step})",
        "num_reports": source.num_reports,
        **_list_statistics(source, STEP_NUMBERS, ("min", "max", "mean", "count")),
    }
    part = f"CASE WHEN {source.first_step} > :last_valid_step THEN 1 ELSE 0 END AS part"
    groups = _select_groups(source, columns, [f"{source.position} / :width AS bucket", part])
    lasts = {f"{name}_last": _find_last(source, name) for name in (*STEP_NUMBERS, *STEP_COUNTS, GSNR, TIME)}
    values = {
        **{"job_id": ":job_id", "attempt": ":attempt", "level": ":new_level", "bucket": "g.bucket", "part": "g.part"},
        **{name: f"g.{name}" for name in columns},
        **lasts,
    }
    updated = ", ".join(f"{name} = excluded.{name}" for name in (*columns, *lasts))
    return text(
        f"INSERT INTO {ROLLUPS.name} ({', '.join(values)}) SELECT {', '.join(values.values())} "
        f"FROM ({groups}) AS g WHERE true "
        f"ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET {updated}"
    )
