"""Policies by which a Job judges failed pods and decides that it has succeeded."""

from dataclasses import dataclass

from tests.kubernetes.fake.controllers.job_indexes import parse_indexes
from tests.kubernetes.fake.objects import is_deleting
from tests.kubernetes.fake.resources import Json


@dataclass(frozen=True)
class Judgement:
    """Words of the policy on a failed pod."""

    counts: bool = True
    """Whether the failure counts towards backoffLimit and backoffLimitPerIndex."""
    failure_message: str = ""
    """Message with which the whole Job fails, "" where it does not."""
    fails_index: bool = False
    """Whether the pod's index fails at once."""


def is_failed(pod: Json, job: Json) -> bool:
    """Whether a pod counts as failed; one that is being deleted may count before it has ended."""
    if pod["status"].get("phase") == "Failed":
        return True
    if replaces_only_failed(job):
        return False
    return is_deleting(pod) and pod["status"].get("phase") != "Succeeded"


def replaces_only_failed(job: Json) -> bool:
    """Whether a pod is replaced only once it has ended."""
    return job["spec"].get("podReplacementPolicy") == "Failed" or bool(job["spec"].get("podFailurePolicy"))


def judge(job: Json, pod: Json) -> Judgement:
    """Return what the first rule that matches says of a failed pod."""
    policy: Json = job["spec"].get("podFailurePolicy") or {}
    metadata: Json = pod["metadata"]
    for index, rule in enumerate(policy.get("rules") or []):
        action: str = rule["action"]
        subject = ""
        if rule.get("onExitCodes"):
            if (container := _match_exit_code(pod, rule["onExitCodes"])) is None:
                continue
            code = container["state"]["terminated"]["exitCode"]
            where = f"{metadata['namespace']}/{metadata['name']}"
            subject = f"Container {container['name']} for pod {where} failed with exit code {code}"
        else:
            if (condition := _match_condition(pod, rule.get("onPodConditions") or [])) is None:
                continue
            subject = f"Pod {metadata['namespace']}/{metadata['name']} has condition {condition['type']}"
        if action == "Ignore":
            return Judgement(counts=False)
        if action == "Count":
            return Judgement()
        if action == "FailIndex":
            return Judgement(fails_index=True)
        return Judgement(failure_message=f"{subject} matching {action} rule at index {index}")
    return Judgement()


def _match_exit_code(pod: Json, requirement: Json) -> Json | None:
    status: Json = pod["status"]
    for container in [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]:
        terminated = container["state"].get("terminated")
        if terminated is None or terminated["exitCode"] == 0:
            continue
        if requirement.get("containerName") not in (None, container["name"]):
            continue
        if (terminated["exitCode"] in requirement["values"]) is (requirement["operator"] == "In"):
            return container
    return None


def _match_condition(pod: Json, patterns: list[Json]) -> Json | None:
    for condition in pod["status"].get("conditions") or []:
        for pattern in patterns:
            if (condition["type"], condition["status"]) == (pattern["type"], pattern.get("status", "True")):
                return condition
    return None


def failure_message(job: Json, pods: list[Json]) -> str:
    """Return the message with which a failed pod fails the whole Job, "" where none does."""
    if not job["spec"].get("podFailurePolicy"):
        return ""
    messages = (judge(job, pod).failure_message for pod in pods if is_failed(pod, job))
    return next(filter(None, messages), "")


def success_message(job: Json, succeeded: set[int]) -> str:
    """Return the message with which the success policy is met, "" where it is not."""
    policy: Json | None = job["spec"].get("successPolicy")
    if not policy or not succeeded:
        return ""
    for index, rule in enumerate(policy["rules"]):
        count = rule.get("succeededCount")
        message = f"Matched rules at index {index}"
        if "succeededIndexes" in rule:
            wanted = parse_indexes(rule["succeededIndexes"])
            if wanted <= succeeded or (count is not None and len(wanted & succeeded) >= count):
                return message
        elif count is not None and len(succeeded) >= count:
            return message
    return ""
