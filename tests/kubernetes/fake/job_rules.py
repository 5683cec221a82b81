"""Rules that a Job obeys: what is refused at its creation and which fields never change."""

from typing import Any

from tests.kubernetes.fake.errors import cause
from tests.kubernetes.fake.object_rules import (
    find_label_errors,
    find_pod_spec_errors,
    is_dns_label,
    missing_value,
    quoted,
    wrong_value,
)
from tests.kubernetes.fake.objects import copy_json, has_condition
from tests.kubernetes.fake.resources import Json

ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
"""Fields that are never negative."""
IMMUTABLE_FIELDS = (
    "selector",
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
MAX_FAILED_INDEXES = 100_000
MANY_COMPLETIONS = 100_000
"""Completions beyond which a Job that limits failures per index must limit more."""
LIMIT_FOR_MANY = 10_000
"""Most pods at a time and most failed indexes of such a Job."""


def generate_selector(job: Json) -> None:
    """Give a new Job its selector, and its template the labels that the selector looks for."""
    spec: Json = job["spec"]
    if spec.get("manualSelector"):
        return
    metadata: Json = job["metadata"]
    labels: dict[str, str] = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    for key in ("job-name", "batch.kubernetes.io/job-name"):
        labels.setdefault(key, metadata["name"])
    for key in ("controller-uid", "batch.kubernetes.io/controller-uid"):
        labels.setdefault(key, metadata["uid"])
    selected: Json = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    selected.setdefault("batch.kubernetes.io/controller-uid", metadata["uid"])


def find_job_errors(job: Json) -> list[Json]:
    """Return the causes for which a Job is refused."""
    spec: Json = job["spec"]
    causes: list[Json] = []
    for name in COUNTS:
        if spec.get(name, 0) < 0:
            causes.append(wrong_value(f"spec.{name}", spec[name], "must be greater than or equal to 0"))
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        causes.append(missing_value("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    causes += _mode_errors(job)
    template: Json = spec["template"]
    causes += find_label_errors(template["metadata"].get("labels") or {}, "spec.template.labels")
    if spec.get("podFailurePolicy"):
        causes += _failure_policy_errors(spec)
    if spec.get("successPolicy") and spec["completionMode"] != "Indexed":
        causes.append(wrong_value("spec.successPolicy", spec["successPolicy"], "requires indexed completion mode"))
    if spec.get("podFailurePolicy") and spec["podReplacementPolicy"] != "Failed":
        message = f'Unsupported value: "{spec["podReplacementPolicy"]}": supported values: "Failed"'
        causes.append(cause("FieldValueNotSupported", message, "spec.podReplacementPolicy"))
    causes += find_pod_spec_errors(template["spec"], "spec.template.spec")
    return causes + _restart_policy_errors(spec) + _hostname_errors(job)


def _mode_errors(job: Json) -> list[Json]:
    spec: Json = job["spec"]
    if spec["completionMode"] not in ("Indexed", "NonIndexed"):
        message = f'Unsupported value: "{spec["completionMode"]}": supported values: "Indexed", "NonIndexed"'
        return [cause("FieldValueNotSupported", message, "spec.completionMode")]
    if spec["completionMode"] != "Indexed":
        why = "requires indexed completion mode"
        names = [name for name in ("backoffLimitPerIndex", "maxFailedIndexes") if name in spec]
        return [wrong_value(f"spec.{name}", spec[name], why) for name in names]
    if "completions" not in spec:
        return [missing_value("spec.completions", "when completion mode is Indexed")]
    return _failed_indexes_errors(spec)


def _failed_indexes_errors(spec: Json) -> list[Json]:
    """Return the causes for which the limits of failed indexes are refused."""
    causes: list[Json] = []
    field = "spec.maxFailedIndexes"
    completions: int = spec["completions"]
    num_failed: int = spec.get("maxFailedIndexes", 0)
    if num_failed > completions:
        causes.append(wrong_value(field, num_failed, "must be less than or equal to completions"))
    if num_failed > MAX_FAILED_INDEXES:
        causes.append(wrong_value(field, num_failed, f"must be less than or equal to {MAX_FAILED_INDEXES}"))
    if completions <= MANY_COMPLETIONS or "backoffLimitPerIndex" not in spec:
        return causes
    if "maxFailedIndexes" not in spec:
        causes.append(missing_value(field, f"must be specified when completions is above {MANY_COMPLETIONS}"))
    for name in ("parallelism", "maxFailedIndexes"):
        if spec.get(name, 0) > LIMIT_FOR_MANY:
            when = f"when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
            why = f"must be less than or equal to {LIMIT_FOR_MANY} {when}"
            causes.append(wrong_value(f"spec.{name}", spec[name], why))
    return causes


def _hostname_errors(job: Json) -> list[Json]:
    """Return the cause for which the pods of a Job could not have its name in their hostnames."""
    spec: Json = job["spec"]
    name: str = job["metadata"].get("name", "")
    hostname = f"{name}-{spec.get('completions', 0) - 1}"
    if spec["completionMode"] == "Indexed" and spec.get("completions") and not is_dns_label(hostname):
        why = f"will not able to create pod with invalid DNS label: {hostname}"
        return [wrong_value("metadata.name", name, why)]
    return []


def _restart_policy_errors(spec: Json) -> list[Json]:
    field = "spec.template.spec.restartPolicy"
    policy = spec["template"]["spec"]["restartPolicy"]
    if policy == "Always":
        return [missing_value(field, 'valid values: "OnFailure", "Never"')]
    if spec.get("podFailurePolicy") and policy != "Never":
        return [wrong_value(field, policy, 'only "Never" is supported when podFailurePolicy is specified')]
    return []


def _failure_policy_errors(spec: Json) -> list[Json]:
    pod_spec: Json = spec["template"]["spec"]
    names = {one["name"] for one in [*(pod_spec.get("containers") or []), *(pod_spec.get("initContainers") or [])]}
    causes: list[Json] = []
    for place, rule in enumerate(spec["podFailurePolicy"].get("rules") or []):
        field = f"spec.podFailurePolicy.rules[{place}]"
        if rule.get("action") not in ACTIONS:
            supported = ", ".join(map(quoted, ACTIONS))
            message = f'Unsupported value: "{rule.get("action")}": supported values: {supported}'
            causes.append(cause("FieldValueNotSupported", message, f"{field}.action"))
        elif rule["action"] == "FailIndex" and "backoffLimitPerIndex" not in spec:
            why = "requires the backoffLimitPerIndex to be set"
            causes.append(wrong_value(f"{field}.action", "FailIndex", why))
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
        if codes and conditions:
            why = "specifying both OnExitCodes and OnPodConditions is not supported"
            causes.append(cause("FieldValueInvalid", f"Invalid value: {why}", field))
        if not codes and not conditions:
            why = "specifying one of OnExitCodes and OnPodConditions is required"
            causes.append(cause("FieldValueInvalid", f"Invalid value: {why}", field))
        if codes:
            causes += _exit_code_errors(codes, f"{field}.onExitCodes", names)
    return causes


def _exit_code_errors(codes: Json, field: str, names: set[str]) -> list[Json]:
    causes: list[Json] = []
    values: list[int] = codes.get("values") or []
    if codes.get("operator") not in ("In", "NotIn"):
        message = f'Unsupported value: "{codes.get("operator")}": supported values: "In", "NotIn"'
        causes.append(cause("FieldValueNotSupported", message, f"{field}.operator"))
    name = codes.get("containerName")
    if name is not None and name not in names:
        why = "must be one of the container or initContainer names in the pod template"
        causes.append(wrong_value(f"{field}.containerName", name, why))
    if not values:
        causes.append(wrong_value(f"{field}.values", "null", "at least one value is required"))
    if codes.get("operator") == "In" and 0 in values:
        causes.append(wrong_value(f"{field}.values[{values.index(0)}]", 0, "must not be 0 for the In operator"))
    if len(set(values)) < len(values):
        causes.append(cause("FieldValueDuplicate", f"Duplicate value: {values}", f"{field}.values"))
    if sorted(values) != values:
        causes.append(wrong_value(f"{field}.values", values, "must be ordered"))
    return causes


def find_job_update_errors(job: Json, old: Json) -> list[Json]:
    """Return the causes for which an update of a Job's specification is refused."""
    spec, old_spec = job["spec"], old["spec"]
    causes: list[Json] = []
    if spec.get("completions") != old_spec.get("completions"):
        if spec["completionMode"] != "Indexed":
            causes.append(_immutable("spec.completions", spec.get("completions")))
        elif spec.get("completions") != spec.get("parallelism"):
            why = "can only be modified in tandem with spec.parallelism"
            causes.append(wrong_value("spec.completions", spec.get("completions"), why))
    causes += [
        _immutable(f"spec.{name}", spec.get(name)) for name in IMMUTABLE_FIELDS if spec.get(name) != old_spec.get(name)
    ]
    if _fixed_template(spec["template"], old) != _fixed_template(old_spec["template"], old):
        if _is_at_rest(old):
            causes.append(_immutable("spec.template.spec", spec["template"]["spec"]))
        else:
            causes.append(_immutable("spec.template", spec["template"]))
    return causes


def find_job_status_errors(job: Json, old: Json) -> list[Json]:
    """Return the causes for which a status is refused that somebody else than the controller writes wrongly."""
    causes: list[Json] = []
    for final, interim in (("Failed", "FailureTarget"), ("Complete", "SuccessCriteriaMet")):
        if has_condition(job, final) and not has_condition(old, final) and not has_condition(job, interim):
            condition = f"{interim}=true condition"
            message = f"Invalid value: cannot set {final}=True condition without the {condition}"
            causes.append(cause("FieldValueInvalid", message, "status.conditions"))
    is_finished = has_condition(job, "Failed") or has_condition(job, "Complete")
    if is_finished and "startTime" not in job["status"] and job["spec"].get("completions") != 0:
        causes.append(missing_value("status.startTime", "startTime is required for finished job"))
    for final in ("Failed", "Complete"):
        if has_condition(old, final) and not has_condition(job, final):
            message = f"Invalid value: cannot disable the terminal {final}=True condition"
            causes.append(cause("FieldValueInvalid", message, "status.conditions"))
    return causes


def _immutable(field: str, value: Any) -> Json:
    return wrong_value(field, value, "field is immutable")


def _is_at_rest(job: Json) -> bool:
    """Whether a Job is suspended and has no pods, so that its template may still change in part."""
    status: Json = job.get("status") or {}
    has_stopped = "startTime" not in status or has_condition(job, "Suspended")
    return job["spec"].get("suspend", False) and has_stopped and not status.get("active")


def _fixed_template(template: Json, old: Json) -> Json:
    """Return what of a template may not change: all, unless the Job is suspended and has no active pods."""
    if not _is_at_rest(old):
        return template
    fixed = copy_json(template)
    for name in ("labels", "annotations"):
        fixed.get("metadata", {}).pop(name, None)
    for name in ("nodeSelector", "tolerations", "schedulingGates"):
        fixed["spec"].pop(name, None)
    affinity: Json = fixed["spec"].get("affinity") or {}
    affinity.pop("nodeAffinity", None)
    for container in [*(fixed["spec"].get("containers") or []), *(fixed["spec"].get("initContainers") or [])]:
        container.pop("resources", None)
    return fixed
