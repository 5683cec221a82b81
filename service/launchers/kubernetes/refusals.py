"""Refusals of the API server at the start of an attempt: which may pass, and what people can do about the others."""

import re

from service.launchers.kubernetes.api import ApiError
from service.launchers.protocol import LaunchError
from service.reasons import Reason

FORBIDDEN, NOT_FOUND, INVALID = 403, 404, 422
MAKE_NAMESPACE = (
    "the namespace of the attempts is missing: create it, or name another one in DLRM_KUBERNETES (namespace)"
)
_OBJECT_NOT_FOUND = re.compile(r'^(secrets|services|jobs\.batch) "')
_RIGHT = re.compile(r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"')
"""Words of Kubernetes about a right that an account lacks."""


def is_missing_right(error: ApiError) -> bool:
    """Whether the service lacks a right, as far as the API server knows."""
    return error.status == FORBIDDEN and _RIGHT.search(str(error)) is not None


def explain_refusal(error: ApiError) -> LaunchError | None:
    """Return the failure of an attempt whose start the API server refuses; None if another try may succeed."""
    text = str(error)
    if not error.is_refusal or (error.status == NOT_FOUND and _OBJECT_NOT_FOUND.match(text)):
        # What another request had found there was deleted between the two.
        return None
    if "exceeded quota" in text:
        return LaunchError(f"the cluster refuses the attempt: {text}", Reason.QUOTA_EXCEEDED)
    advice = _advise(error.status, text)
    return LaunchError(f"the cluster refuses the attempt: {text}{'; ' if advice else ''}{advice}")


def advise_on_right(text: str) -> str:
    """Say which right is to be granted; empty if `text`, the words of the cluster, names none."""
    if (right := _RIGHT.search(text)) is None:
        return ""
    group = f"{right['group']}/" if right["group"] else ""
    return (
        f"grant the verb {right['verb']} on {group}{right['resource']} to the service in its Role "
        "(deploy/kustomize/base)"
    )


def _advise(status: int, text: str) -> str:
    """Say what to do about a refusal; empty if the words of the cluster are all that is known."""
    if status == FORBIDDEN and (advice := advise_on_right(text)):
        return advice
    if "is being terminated" in text:
        return "the namespace is being deleted: submit the job again once there is another one"
    if status == NOT_FOUND and "namespaces" in text:
        return MAKE_NAMESPACE
    if status == INVALID and "priority" in text.lower():
        return "see resources.kubernetes.priority_class of the job, and priority_class in DLRM_KUBERNETES"
    if status == INVALID:
        return "see resources.kubernetes of the job, and the same fields in DLRM_KUBERNETES"
    return ""
