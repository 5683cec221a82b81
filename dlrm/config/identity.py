"""Identity of a run: the settings in which a checkpoint and a run resumed from it must agree."""

import json
from collections.abc import Mapping
from typing import Any, cast

from dlrm.config.job import JobConfig
from dlrm.config.optimizers import SETTINGS
from dlrm.config.table_dims import has_one_dim

EXECUTION_SETTINGS: dict[str, Any] = {
    "name": True,
    "labels": True,
    "preset": True,
    "filled_by_preset": True,
    "priority": True,
    "max_restarts": True,
    "deadline_seconds": True,
    "deadline_from": True,
    "resources": True,
    "sharding": {"plan": True, "tables": True, "transport": True, "resident_memory": True, "topology": True},
    "batch": {"chunk_size": True},
    "run": {
        "checkpoint_every_seconds": True,
        "deltas": True,
        "group_by": True,
        "keep_checkpoints": True,
        "keep_scores": True,
        "peer_timeout_seconds": True,
        "recall_at": True,
        "sharpness": True,
        "trackers": True,
        "yardsticks": True,
    },
}
"""Settings that change neither what a job learns nor when it is evaluated: place, speed, what it keeps, and the preset
(its values are in other fields); as the argument `exclude` of pydantic."""

_EVALUATION_SETTINGS = {
    "eval_every_fraction": True,
    "num_train_eval_rows": True,
    "patience": True,
    "keep_model": True,
    "blend": True,
    "recalibrate": True,
    "target_auc": True,
}
_EXCLUDED: dict[str, Any] = {**EXECUTION_SETTINGS, "run": {**EXECUTION_SETTINGS["run"], **_EVALUATION_SETTINGS}}
"""Settings that may differ from one attempt to the next: they change where, how fast and how often, not what is
learned."""

_USERS_OF_MOMENTS = ("variance_reduction", "batch.growth")
"""Sections, null by default, that let moments change what is learned, as the scaling of the dense rate may."""


def make_identity(job: JobConfig) -> dict[str, Any]:
    """Return every setting of a run that changes its weights beyond rounding, as JSON values by dotted field.

    The files of prepared rows are left out, so that paths may differ: a checksum of the rows stands for them.
    """
    excluded = dict(_EXCLUDED)
    if job.variance_reduction is None and job.batch.growth is None and not job.dense_optimizer.schedule.follows_gain:
        # Moments are only monitored.
        excluded["moments"] = True
    if job.data.format != "synthetic":
        excluded["data"] = {"train": True, "eval": True, "follow": True}
    document = job.model_dump(mode="json", exclude=excluded)
    if has_one_dim(job.model.table_dims, job.model.embedding_dim):
        document["model"]["table_dims"] = None
    identity = dict(flatten(document))
    if identity.get("moments.every") == "auto" and (
        job.variance_reduction is not None or job.dense_optimizer.schedule.follows_gain
    ):
        identity["moments.every"] = 1
    return identity


def list_differences(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """List each field in which two identities differ, in words: `field is A, but was B`.

    If one identity lacks a field, because an earlier version wrote it, the field counts as having its default.
    """
    sides = [_fill_defaults(side) for side in (now, before)]
    # Also where the other identity is of before there was such a section.
    null_sections = [section for section in _USERS_OF_MOMENTS if any(section in side for side in sides)]
    named = {**now, **before, **dict.fromkeys(null_sections)}
    fields = [field for field in named if not any(_is_in_null_section(field, side) for side in sides)]
    pairs = {field: [_get_value(field, side) for side in sides] for field in fields}
    return [
        f"{field} is {json.dumps(is_now)}, but was {json.dumps(was)}"
        for field, (is_now, was) in pairs.items()
        if is_now != was
    ]


def _is_in_null_section(field: str, side: Mapping[str, Any]) -> bool:
    """Whether `field` belongs to a section that is null in `side`, so that the difference of the section says enough.

    An identity has the fields of `moments` only if they change what is learned.
    """
    if field.startswith("moments."):
        return field not in side
    section = field.rpartition(".")[0]
    return section in side and side[section] is None


def _get_value(field: str, side: Mapping[str, Any]) -> Any:
    """Return the value of `field`, or a whole section as a dictionary where the other side has null in its place."""
    section = {name.removeprefix(f"{field}."): value for name, value in side.items() if name.startswith(f"{field}.")}
    return section or side.get(field)


def _fill_defaults(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity with the defaults of the fields that it lacks.

    They are the defaults of a job with the same optimizer, since each optimizer has its own, and with variance
    reduction if it has that.
    """
    name = identity.get("dense_optimizer.name")
    is_reduced = any(field.startswith("variance_reduction.") for field in identity)
    document = {
        "data": {"format": "synthetic"},
        "dense_optimizer": {"name": name} if name in SETTINGS else {},
        "variance_reduction": {} if is_reduced else None,
    }
    defaults = make_identity(JobConfig.model_validate(document))
    # What is null by default is not where it has fields. That of columns stays: a checksum of the rows stands for them.
    given = {field.rpartition(".")[0] for field in identity if not field.startswith("data.")}
    return {field: value for field, value in defaults.items() if field not in given} | dict(identity)


def flatten(document: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """List the fields of a document with their dotted paths; a list counts as one value."""
    fields: list[tuple[str, Any]] = []
    for name, value in document.items():
        # A list of columns counts as one setting.
        section = cast("dict[str, Any]", value) if isinstance(value, dict) else None
        fields += flatten(section, f"{prefix}{name}.") if section else [(f"{prefix}{name}", value)]
    return fields
