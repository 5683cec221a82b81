"""Fields that the server fills in where a manifest leaves them out."""

from tests.kubernetes.fake.resources import EVENTS, JOBS, LIMIT_RANGES, PODS, SERVICES, VOLUME_CLAIMS, Json, Resource

MAX_INT32 = 2**31 - 1


def fill_defaults(resource: Resource, thing: Json) -> None:
    """Fill in the defaults of a kind."""
    if resource == PODS:
        fill_pod_spec(thing.setdefault("spec", {}))
        for status in (thing.get("status") or {}).get("containerStatuses") or []:
            for name, value in _CONTAINER_STATUS.items():
                status.setdefault(name, value)
    elif resource == JOBS:
        _fill_job(thing)
    elif resource == SERVICES:
        _fill_service(thing.setdefault("spec", {}))
    elif resource == VOLUME_CLAIMS:
        thing.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    elif resource == LIMIT_RANGES:
        for limit in (thing.get("spec") or {}).get("limits") or []:
            if limit.get("type") == "Container":
                _fill_limit(limit)
    elif resource == EVENTS:
        # Events are of an older and a newer kind; what the one does not have is null.
        for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
            thing.setdefault(name, None)
        thing.setdefault("source", {})
        for name in ("reportingComponent", "reportingInstance"):
            thing.setdefault(name, "")


def _fill_limit(limit: Json) -> None:
    for source, name in (("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")):
        for key, amount in (limit.get(source) or {}).items():
            limit.setdefault(name, {}).setdefault(key, amount)


def _fill_job(job: Json) -> None:
    spec: Json = job.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", MAX_INT32 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    policy: Json | None = spec.get("podFailurePolicy")
    spec.setdefault("podReplacementPolicy", "Failed" if policy else "TerminatingOrFailed")
    for rule in (policy or {}).get("rules", []):
        for pattern in rule.get("onPodConditions") or []:
            pattern.setdefault("status", "True")
    template: Json = spec.setdefault("template", {})
    labels: dict[str, str] | None = template.setdefault("metadata", {}).get("labels")
    if labels is not None and not job["metadata"].get("labels"):
        # The same mapping, as in the real server: the labels that the selector needs come into both.
        job["metadata"]["labels"] = labels
    fill_pod_spec(template.setdefault("spec", {}))


def fill_pod_spec(spec: Json) -> None:
    """Fill in the defaults of a pod's specification."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if "serviceAccountName" in spec:
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        _fill_container(container)
    for volume in spec.get("volumes") or []:
        for source in ("configMap", "secret", "projected", "downwardAPI"):
            if source in volume:
                volume[source].setdefault("defaultMode", 420)
        if "hostPath" in volume:
            volume["hostPath"].setdefault("type", "")


def _fill_container(container: Json) -> None:
    image = str(container.get("image", ""))
    tag = image.rpartition("/")[2].partition(":")[2]
    is_latest = tag in ("", "latest") and "@" not in image
    container.setdefault("imagePullPolicy", "Always" if is_latest else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources: Json = container.setdefault("resources", {})
    for name, quantity in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, quantity)
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or []:
        field: Json | None = (variable.get("valueFrom") or {}).get("fieldRef")
        if field:
            field.setdefault("apiVersion", "v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            probe: Json = container[name]
            for field_name, value in _PROBE.items():
                probe.setdefault(field_name, value)


_CONTAINER_STATUS = {"image": "", "imageID": "", "lastState": {}, "ready": False, "restartCount": 0, "state": {}}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}


def _fill_service(spec: Json) -> None:
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
