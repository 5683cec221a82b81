"""Curves of a job: numbers of its steps and evaluations over the steps, by points of equally many steps."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic_core import to_json
from sqlalchemy.orm import Session

from dlrm.config import FieldError
from service.access.principal import Principal
from service.access.visibility import get_visible_job
from service.database import Database
from service.http.paging import MAX_SERIAL
from service.http.problems import invalid_request
from service.parts import depend_on
from service.reports.attempt_ranges import AttemptRange, MetricKind
from service.reports.pages import MAX_PAGE_BYTES
from service.reports.repository import ReportRepository
from service.reports.rollups import GSNR, Columns, PointRange, RollupRepository, compute_point_steps
from service.store.metric_tables import (
    BUCKET_FACTOR,
    EVALUATION_NUMBERS,
    EVALUATION_OBJECTS,
    STEP_COUNTS,
    STEP_NUMBERS,
    TIME,
)

DIGITS = 7
"""Significant digits of the numbers of a curve."""
TIME_DECIMALS = 3
"""Decimals of the seconds of a time."""
TRAINING_NAMES = (*STEP_NUMBERS, *STEP_COUNTS, GSNR, TIME)
EVALUATION_NAMES = (*EVALUATION_NUMBERS, "num_rows", *EVALUATION_OBJECTS, TIME)


@dataclass(frozen=True)
class CurveQuery:
    """Query for the curves of these names from step `since` to `until`, with about `resolution` points at most."""

    training: Sequence[str]
    evaluation: Sequence[str]
    layers: frozenset[str] | None
    """Layers whose ratios are read; None for all."""
    resolution: int
    since: int
    attempt: int | None
    """Number of one attempt, with its void reports; None for the valid reports of all attempts."""
    until: int | None = None
    """Step up to which points begin. The resolution is then for the steps after `since` alone; None for all steps."""


@dataclass
class _Curves:
    """Curves of one kind of reports; `steps` are the last steps of the points."""

    steps_per_point: int
    steps: list[int] = field(default_factory=list[int])
    curves: dict[str, dict[str, list[Any]]] = field(default_factory=dict[str, dict[str, list[Any]]])


def parse_names(names: str) -> tuple[list[str], list[str], frozenset[str] | None]:
    """Split names into training, evaluation and layers. Raises ProblemError (422) if there is no such name."""
    chosen = list(dict.fromkeys(name.strip() for name in names.split(",")))
    layers = [name.removeprefix(f"{GSNR}.") for name in chosen if name.startswith(f"{GSNR}.")]
    known = [name for name in chosen if not name.startswith(f"{GSNR}.")]
    if unknown := [name for name in known if name not in TRAINING_NAMES and name not in EVALUATION_NAMES]:
        valid = ", ".join(dict.fromkeys((*TRAINING_NAMES, f"{GSNR}.LAYER", *EVALUATION_NAMES)))
        raise invalid_request([FieldError("names", f"there is no curve {unknown[0]!r}", valid)])
    training = [name for name in known if name in TRAINING_NAMES]
    evaluation = [name for name in known if name in EVALUATION_NAMES]
    # The time belongs to the kinds of the other names, or else to both.
    if training == [TIME] and not layers and evaluation != [TIME]:
        training = []
    elif evaluation == [TIME] and (layers or training != [TIME]):
        evaluation = []
    if layers and GSNR not in training:
        return [*training, GSNR], evaluation, frozenset(layers)
    return training, evaluation, None


class CurveService:
    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, job_id: str, principal: Principal, query: CurveQuery) -> bytes:
        """Return the JSON of the `Curves` that a query selects.

        Raises ProblemError if there is no such job that `principal` may know of.
        """
        with self._database.read() as session:
            get_visible_job(session, job_id, principal)
            training = _read_training(session, job_id, query) if query.training else None
            evaluation = _read_evaluation(session, job_id, query) if query.evaluation else None
            starts = ReportRepository(session).list_starts(job_id)
        return to_json({"training": training, "evaluation": evaluation, "starts": starts}, inf_nan_mode="null")


CurveReader = Annotated[CurveService, depend_on(CurveService)]
"""Parameter type of an endpoint that needs the service."""


def _read_training(session: Session, job_id: str, query: CurveQuery) -> _Curves:
    reports, rollups = ReportRepository(session), RollupRepository(session)
    ranges = reports.list_ranges(job_id, "step", query.attempt)
    # Later ranges have later steps; the last attempt may not have any yet.
    num_steps = next((step for own in reversed(ranges) if (step := rollups.find_last_step(job_id, own))), 0)
    num_characters = reports.measure_gsnr(job_id) if GSNR in query.training else 0
    resolution = _limit_resolution(query, num_characters)
    min_level = 1 if reports.are_steps_removed(job_id) else 0
    point_steps = max(compute_point_steps(_count_steps(query, num_steps), resolution), BUCKET_FACTOR**min_level)
    parts = [
        rollups.read_steps(job_id, query.training, chosen, min_level)
        for chosen in _list_points(ranges, point_steps, query)
    ]
    return _make_curves(query, "step", point_steps, parts)


def _read_evaluation(session: Session, job_id: str, query: CurveQuery) -> _Curves:
    reports, rollups = ReportRepository(session), RollupRepository(session)
    ranges = reports.list_ranges(job_id, "evaluation", query.attempt)
    first, last = (0, MAX_SERIAL) if query.until is None else (query.since, query.until)
    num_evaluations, last_step = reports.count_evaluations(job_id, first, last)
    objects = [name for name in query.evaluation if name in EVALUATION_OBJECTS]
    resolution = _limit_resolution(query, reports.measure_objects(job_id, objects) if objects else 0)
    is_long = num_evaluations > resolution
    point_steps = compute_point_steps(_count_steps(query, last_step), resolution) if is_long else 1
    parts = [
        rollups.read_evaluations(job_id, query.evaluation, chosen)
        for chosen in _list_points(ranges, point_steps, query)
    ]
    return _make_curves(query, "evaluation", point_steps, parts)


def _limit_resolution(query: CurveQuery, num_characters: int) -> int:
    """Return the resolution of a query at which objects of so many characters a point are no too long answer."""
    return max(1, min(query.resolution, MAX_PAGE_BYTES // max(1, num_characters)))


def _count_steps(query: CurveQuery, last_step: int) -> int:
    """Return the number of steps of a query's range, or of the whole curve if the range has no end."""
    return last_step if query.until is None else max(1, min(query.until, last_step) - query.since)


def _list_points(ranges: Sequence[AttemptRange], point_steps: int, query: CurveQuery) -> list[PointRange]:
    """List what is to be read for points that end after `since` and begin before `until`, complete at both ends."""
    after = query.since // point_steps * point_steps
    end = MAX_SERIAL if query.until is None else -(-query.until // point_steps) * point_steps
    chosen = [replace(own, last_step=min(own.last_step, end)) for own in ranges if own.last_step > query.since]
    return [PointRange(own, point_steps, after) for own in chosen]


def _make_curves(query: CurveQuery, kind: MetricKind, point_steps: int, parts: Iterable[Columns]) -> _Curves:
    made = _Curves(point_steps)
    names = query.training if kind == "step" else query.evaluation
    rolled = () if point_steps == 1 else (*STEP_NUMBERS, *EVALUATION_NUMBERS)
    joined: dict[str, list[Any]] = {}
    for part in parts:
        first = next((number for number, step in enumerate(part["last_step"]) if step > query.since), None)
        for name, values in part.items():
            joined.setdefault(name, []).extend([] if first is None else values[first:])
    made.steps = joined.get("last_step", [])
    for name in names:
        if name == GSNR:
            made.curves |= _split_objects(joined.get(f"{GSNR}_last", []), f"{GSNR}.", query.layers)
            continue
        if name in EVALUATION_OBJECTS:
            found = _split_objects(joined.get(f"{name}_last", []), "", None)
            # A figure of a task never has the name of one of the job.
            made.curves |= {own: curve for own, curve in found.items() if own not in EVALUATION_NAMES}
            continue
        statistics = ("mean", "min", "max", "last") if name in rolled else ("last",)
        round_value = _round_time if name == TIME else _round
        made.curves[name] = {
            key: [round_value(value) for value in joined.get(f"{name}_{key}", [])] for key in statistics
        }
    return made


def _split_objects(
    objects: Sequence[Any], prefix: str, chosen: frozenset[str] | None
) -> dict[str, dict[str, list[Any]]]:
    """Make the curves of numbers by name from the objects of each point.

    prefix: beginning of the names of curves. chosen: names of the numbers; None for all.
    """
    rows: list[dict[str, float | None]] = [json.loads(row) if isinstance(row, str) else row or {} for row in objects]
    shown = dict.fromkeys(name for row in rows for name in row) if chosen is None else chosen
    return {f"{prefix}{name}": {"last": [_round(row.get(name)) for row in rows]} for name in shown}


def _round(value: float | None) -> float | None:
    """Round to DIGITS significant digits, but whole numbers to none."""
    if value is None:
        return None
    return int(value) if value == int(value) else float(f"{value:.{DIGITS}g}")


def _round_time(value: float | None) -> float | None:
    return None if value is None else round(value, TIME_DECIMALS)
