"""Check of the placement that a job asks for against what the settings of the launcher allow."""

import fnmatch
from collections.abc import Sequence
from typing import Any

from dlrm.config import FieldError, KubernetesConfig
from service.launchers.kubernetes.options import KubernetesOptions
from service.launchers.protocol import LaunchError

FIELD = "resources.kubernetes"
"""Path in a job document of what is checked here."""


def list_placement_faults(placement: KubernetesConfig, options: KubernetesOptions) -> list[FieldError]:
    """List what a job asks for and the settings do not allow; empty if everything is allowed."""
    named = (
        ("image", placement.image, options.image, options.allowed_images),
        ("queue_name", placement.queue_name, options.queue_name, options.allowed_queues),
        ("priority_class", placement.priority_class, options.priority_class, options.allowed_priority_classes),
    )
    faults = [
        FieldError(f"{FIELD}.{field}", f"{name} is not allowed", _join([*([own] if own else []), *patterns]))
        for field, name, own, patterns in named
        if name is not None and name != own and not _matches_any(name, patterns)
    ]
    return [*faults, *_list_label_faults(placement, options), *_list_toleration_faults(placement, options)]


def check_placement(placement: KubernetesConfig, options: KubernetesOptions) -> None:
    """Check a placement again at the start of an attempt: the settings may have changed. Raises LaunchError."""
    if faults := list_placement_faults(placement, options):
        raise LaunchError("; ".join(map(str, faults)))


def dump_tolerations(placement: KubernetesConfig) -> list[dict[str, Any]]:
    """Return the tolerations of a job as a pod's specification has them."""
    return [toleration.model_dump(by_alias=True, exclude_none=True) for toleration in placement.tolerations]


def _list_label_faults(placement: KubernetesConfig, options: KubernetesOptions) -> list[FieldError]:
    """List the labels of nodes for which a job asks for another value than the settings."""
    return [
        FieldError(f"{FIELD}.node_selector.{label}", f"{value} is not allowed", options.node_selector[label])
        for label, value in placement.node_selector.items()
        if value != options.node_selector.get(label, value)
    ]


def _list_toleration_faults(placement: KubernetesConfig, options: KubernetesOptions) -> list[FieldError]:
    """List the tolerations of a job that the settings neither have themselves nor allow by their key."""
    own = [{"operator": "Equal", **toleration} for toleration in options.tolerations]
    return [
        FieldError(
            f"{FIELD}.tolerations[{number}]",
            f"{toleration.get('key', 'a toleration of every taint')} is not allowed",
            _join(options.allowed_tolerations),
        )
        for number, toleration in enumerate(dump_tolerations(placement))
        # One without a key tolerates every taint: of all patterns only "*" matches the empty text.
        if toleration not in own and not _matches_any(toleration.get("key", ""), options.allowed_tolerations)
    ]


def _matches_any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _join(valid: Sequence[str]) -> str:
    return ", ".join(valid) or "none: leave it out"
