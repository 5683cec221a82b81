"""Rules that all objects and pods obey, beyond the schemas."""

import base64
import json
import re
from typing import Any

from tests.kubernetes.fake.errors import ApiError, bad_request, cause
from tests.kubernetes.fake.objects import copy_json
from tests.kubernetes.fake.quantities import parse_quantity
from tests.kubernetes.fake.resources import CONFIG_MAPS, NAMESPACES, PODS, SECRETS, SERVICES, Json, Resource

_LABEL_PATTERN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    f"'{_LABEL_PATTERN}')"
)
_SUBDOMAIN_PATTERN = rf"{_LABEL_PATTERN}(\.{_LABEL_PATTERN})*"
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    rf"'{_SUBDOMAIN_PATTERN}')"
)
_VALUE_PATTERN = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_VALUE_PATTERN}')"
)
_KEY_PATTERN = re.compile(rf"({_SUBDOMAIN_PATTERN}/)?([A-Za-z0-9][-A-Za-z0-9_.]{{0,61}})?[A-Za-z0-9]")
MAX_ANNOTATIONS_BYTES = 256 * 1024
MAX_DATA_BYTES = 1024 * 1024


def quoted(value: Any) -> str:
    """Return a value as messages show it."""
    return f'"{value}"' if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def wrong_value(field: str, value: Any, why: str) -> Json:
    """Return the cause "Invalid value"."""
    return cause("FieldValueInvalid", f"Invalid value: {quoted(value)}: {why}", field)


def missing_value(field: str, why: str = "") -> Json:
    """Return the cause "Required value"."""
    return cause("FieldValueRequired", f"Required value: {why}" if why else "Required value", field)


def is_dns_label(text: str) -> bool:
    """Whether a text may be a hostname."""
    return len(text) <= 63 and re.fullmatch(_LABEL_PATTERN, text) is not None


def find_metadata_errors(resource: Resource, thing: Json) -> list[Json]:
    """Return the causes for which metadata is refused."""
    metadata: Json = thing["metadata"]
    name: str = metadata.get("name", "")
    if not name:
        return [missing_value("metadata.name", "name or generateName is required")]
    causes: list[Json] = []
    if resource in (NAMESPACES, SERVICES):
        causes += _name_errors(name, _LABEL_PATTERN, _LABEL_TEXT, 63)
    else:
        causes += _name_errors(name, _SUBDOMAIN_PATTERN, _SUBDOMAIN_TEXT, 253)
    causes += find_label_errors(metadata.get("labels") or {}, "metadata.labels")
    annotations: dict[str, str] = metadata.get("annotations") or {}
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > MAX_ANNOTATIONS_BYTES:
        message = f"Too long: may not be more than {MAX_ANNOTATIONS_BYTES} bytes"
        causes.append(cause("FieldValueTooLong", message, "metadata.annotations"))
    for reference in metadata.get("ownerReferences") or []:
        causes += [
            wrong_value(f"{_REFERENCES}.{member}", "", "must not be empty")
            for member in ("apiVersion", "kind", "name", "uid")
            if not reference.get(member)
        ]
    if sum(bool(one.get("controller")) for one in metadata.get("ownerReferences") or []) > 1:
        causes.append(wrong_value(_REFERENCES, "", "Only one reference can have Controller set to true"))
    return causes


_REFERENCES = "metadata.ownerReferences"


def _name_errors(name: str, pattern: str, text: str, most: int) -> list[Json]:
    causes: list[Json] = []
    if len(name) > most:
        causes.append(wrong_value("metadata.name", name, f"must be no more than {most} bytes"))
    if re.fullmatch(pattern, name) is None:
        causes.append(wrong_value("metadata.name", name, text))
    return causes


def find_label_errors(labels: dict[str, str], field: str) -> list[Json]:
    """Return the causes for which labels are refused."""
    causes: list[Json] = []
    for key, value in labels.items():
        if _KEY_PATTERN.fullmatch(key) is None:
            causes.append(wrong_value(field, key, "name part must consist of alphanumeric characters, '-', '_' or '.'"))
        if len(value) > 63:
            causes.append(wrong_value(field, value, "must be no more than 63 bytes"))
        elif re.fullmatch(_VALUE_PATTERN, value) is None:
            causes.append(wrong_value(field, value, _VALUE_TEXT))
    return causes


def find_pod_spec_errors(spec: Json, field: str) -> list[Json]:
    """Return the causes for which the specification of pods is refused."""
    causes: list[Json] = []
    containers: list[Json] = spec.get("containers") or []
    if not containers:
        causes.append(missing_value(f"{field}.containers"))
    volumes = {volume.get("name") for volume in spec.get("volumes") or []}
    names: set[str] = set()
    for kind in ("initContainers", "containers"):
        for place, container in enumerate(spec.get(kind) or []):
            where = f"{field}.{kind}[{place}]"
            name: str = container.get("name", "")
            if not is_dns_label(name):
                causes.append(wrong_value(f"{where}.name", name, _LABEL_TEXT))
            if name in names:
                causes.append(cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{where}.name"))
            names.add(name)
            if not container.get("image"):
                causes.append(missing_value(f"{where}.image"))
            for number, mount in enumerate(container.get("volumeMounts") or []):
                if mount.get("name") not in volumes:
                    message = f'Not found: "{mount.get("name")}"'
                    causes.append(cause("FieldValueNotFound", message, f"{where}.volumeMounts[{number}].name"))
            causes += _resource_errors(container.get("resources") or {}, f"{where}.resources")
    policy = spec.get("restartPolicy")
    if policy not in ("Always", "OnFailure", "Never"):
        message = f'Unsupported value: "{policy}": supported values: "Always", "OnFailure", "Never"'
        causes.append(cause("FieldValueNotSupported", message, f"{field}.restartPolicy"))
    return causes


def _resource_errors(resources: Json, field: str) -> list[Json]:
    causes: list[Json] = []
    limits: Json = resources.get("limits") or {}
    for kind in ("limits", "requests"):
        for name, quantity in (resources.get(kind) or {}).items():
            try:
                parse_quantity(quantity)
            except ValueError as error:
                raise bad_request(
                    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                ) from error
            if "/" in name and kind == "requests" and limits.get(name) != quantity:
                causes.append(missing_value(f"{field}.limits", "Limit must be set for non overcommitable resources"))
    for name, quantity in (resources.get("requests") or {}).items():
        if name in limits and parse_quantity(quantity) > parse_quantity(limits[name]):
            why = f"must be less than or equal to {name} limit of {limits[name]}"
            causes.append(wrong_value(f"{field}.requests", str(quantity), why))
    return causes


def find_pod_update_errors(pod: Json, old: Json) -> list[Json]:
    """Return the cause for which an update of a pod's specification is refused."""
    new_spec, old_spec = copy_json(pod["spec"]), copy_json(old["spec"])
    for spec in (new_spec, old_spec):
        spec.pop("activeDeadlineSeconds", None)
        spec.pop("terminationGracePeriodSeconds", None)
        for container in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
            container.pop("image", None)
    added = new_spec.pop("tolerations", [])
    kept = old_spec.pop("tolerations", [])
    if new_spec == old_spec and all(one in added for one in kept):
        return []
    fields = (
        "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
        "`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
        "(allow it to be set to 1 if it was previously negative)"
    )
    return [cause("FieldValueForbidden", f"Forbidden: pod updates may not change fields other than {fields}", "spec")]


def prepare_data(resource: Resource, thing: Json) -> None:
    """Turn stringData of a Secret into data, and check that data can be decoded and is not too long."""
    if resource == SECRETS:
        for key, text in (thing.pop("stringData", None) or {}).items():
            thing.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
        thing.setdefault("type", "Opaque")
    if resource not in (SECRETS, CONFIG_MAPS):
        return
    num_bytes = 0
    for value in (thing.get("data") or {}).values():
        if resource == SECRETS:
            try:
                num_bytes += len(base64.b64decode(value, validate=True))
            except ValueError as error:
                raise bad_request(f"{resource.kind} in version cannot be handled: illegal base64 data") from error
        else:
            num_bytes += len(value.encode())
    if num_bytes > MAX_DATA_BYTES:
        message = f"Too long: may not be more than {MAX_DATA_BYTES} bytes"
        details = {"name": thing["metadata"].get("name"), "kind": resource.kind}
        text = f'{resource.kind} "{details["name"]}" is invalid: []: {message}'
        raise ApiError(422, "Invalid", text, {**details, "causes": [cause("FieldValueTooLong", message, "[]")]})


def find_data_update_errors(thing: Json, old: Json) -> list[Json]:
    """Return the cause for which a change of an immutable ConfigMap or Secret is refused."""
    if old.get("immutable") and (thing.get("data") != old.get("data") or not thing.get("immutable")):
        return [cause("FieldValueForbidden", "Forbidden: field is immutable when `immutable` is set", "data")]
    return []


def find_errors(resource: Resource, thing: Json) -> list[Json]:
    """Return the causes for which an object is refused, other than those of Jobs."""
    causes = find_metadata_errors(resource, thing)
    if resource == PODS:
        causes += find_pod_spec_errors(thing["spec"], "spec")
    return causes
