"""Which settings make a run the one it is: a checkpoint of others is not gone on from."""

import json
from collections.abc import Mapping
from typing import Any, cast

from dlrm.config.job import JobSpec
from dlrm.config.optimizers import SETTINGS

_FREE: dict[str, Any] = {
    "name": True,
    "labels": True,
    "priority": True,
    "max_restarts": True,
    "deadline_seconds": True,
    "resources": True,
    "sharding": {"plan": True, "tables": True, "transport": True, "topology": True},
    "batch": {"chunk_size": True},
    "run": {
        "eval_every_fraction": True,
        "target_auc": True,
        "checkpoint_every_seconds": True,
        "keep_checkpoints": True,
    },
}
"""What may differ from one attempt to the next: it decides where, how fast and how often, not what is learned."""


def identity_of(job: JobSpec) -> dict[str, Any]:
    """Of a run: every setting that changes its weights beyond rounding, by dotted field. As JSON.

    Where its rows were prepared, their checksum stands for the files they came from, so that paths may differ.
    """
    excluded = dict(_FREE)
    if job.variance_reduction is None:
        # They are only watched then.
        excluded["moments"] = True
    if job.data.format != "synthetic":
        excluded["data"] = {"train": True, "eval": True}
    identity = dict(_flat(job.model_dump(mode="json", exclude=excluded)))
    if identity.get("moments.every") == "auto":
        identity["moments.every"] = 1
    return identity


def differences(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """Each field in which two identities differ, in words: `field is A, and was B`.

    A field that one does not have, since it is of an earlier version, had what is now the default.
    """
    sides = [_defaults(side) | dict(side) for side in (now, before)]
    fields = [field for field in {**now, **before} if not any(_is_of_what_is_not(field, side) for side in sides)]
    pairs = {field: [_value(field, side) for side in sides] for field in fields}
    return [
        f"{field} is {json.dumps(is_now)}, and was {json.dumps(was)}"
        for field, (is_now, was) in pairs.items()
        if is_now != was
    ]


def _is_of_what_is_not(field: str, side: Mapping[str, Any]) -> bool:
    """Whether it belongs to a section that is null there, which says enough; moments count for variance reduction."""
    section = "variance_reduction" if field.startswith("moments.") else field.rpartition(".")[0]
    return section in side and side[section] is None


def _value(field: str, side: Mapping[str, Any]) -> Any:
    """A whole section where the other side has null in its place."""
    section = {name.removeprefix(f"{field}."): value for name, value in side.items() if name.startswith(f"{field}.")}
    return section or side.get(field)


def _defaults(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Of a job with the same optimizer: each has its own."""
    name = identity.get("dense_optimizer.name")
    document = {"data": {"format": "synthetic"}, "dense_optimizer": {"name": name} if name in SETTINGS else {}}
    return identity_of(JobSpec.model_validate(document))


def _flat(document: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in document.items():
        # A list of columns is one setting.
        section = cast("dict[str, Any]", value) if isinstance(value, dict) else None
        found += _flat(section, f"{prefix}{name}.") if section else [(f"{prefix}{name}", value)]
    return found
