"""Settings of a job that follows a growing set of files, and what a run without a known end must leave as it is."""

import json
from collections.abc import Mapping
from functools import reduce
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, Field

from dlrm.config.base import FALSE_IS_NULL, MAX_SECONDS, Config
from dlrm.config.errors import invalid


class FollowConfig(Config):
    """A growing set of files: the job trains on each file once, in order, and waits for the next one. It evaluates the
    model on the rows of a file before it trains on them. Which rows a model has seen, and in which order, depends on
    the files alone, and not on when they came."""

    by: Literal["name", "time"] = "name"
    """Order of files that are there at the same time. name: as in `data.train`; time: by the time of their last change.
    A late file is trained on next, after files with later names."""
    settle_seconds: float = Field(default=60.0, ge=0.0, le=MAX_SECONDS)
    """Seconds since its last change after which a file counts as complete."""
    look_every_seconds: float = Field(default=10.0, ge=0.1, le=3600.0)
    """Seconds from one look for new files to the next."""
    idle_minutes: Annotated[Annotated[float, Field(gt=0.0, le=MAX_SECONDS)] | None, FALSE_IS_NULL] = None
    """Minutes without a new file before the job ends: it trains on the rows that are left, and succeeds. Time in which
    files cannot be listed or read does not count. null or false: it never ends by itself."""


ENDLESS_SCHEDULE: dict[str, Any] = {"decay": "constant", "warmup_fraction": 0.0}
"""Settings of the dense learning rate over a run without a known end."""
_ENDLESS: dict[str, Any] = {
    "preset": None,
    "data.eval": None,
    "batch.schedule": [],
    "batch.growth": None,
    "averaging": None,
    "pruning": None,
    "run.target_auc": None,
    "run.keep_scores": False,
    **{
        f"{optimizer}.schedule.{field}": value
        for optimizer in ("dense_optimizer", "table_optimizer")
        for field, value in {**ENDLESS_SCHEDULE, "autowu": None}.items()
    },
}
"""Settings of shares of a run and of constant evaluation rows, by dotted path."""


def check_endless(job: BaseModel) -> None:
    """Raise an error for the first setting of a job that means nothing without a known end."""
    for path, value in _ENDLESS.items():
        if reduce(getattr, path.split("."), job) != value:
            raise invalid(path, "is of a run whose end is known, and data.follow has none", json.dumps(value))


def fill_endless(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job document with the schedule of the dense rate that a run without a known end has."""
    optimizer = document.get("dense_optimizer", {})
    schedule = cast("dict[str, Any]", optimizer).get("schedule", {}) if isinstance(optimizer, dict) else None
    if not isinstance(schedule, dict):
        return {**document}
    return {**document, "dense_optimizer": {**optimizer, "schedule": {**ENDLESS_SCHEDULE, **schedule}}}
