"""Label and field selectors of lists and watches."""

import re
from collections.abc import Callable

from tests.kubernetes.fake.errors import bad_request
from tests.kubernetes.fake.objects import labels_of
from tests.kubernetes.fake.resources import EVENTS, JOBS, NAMESPACES, NODES, PODS, SECRETS, Json, Resource

Matcher = Callable[[Json], bool]

FIELDS: dict[Resource, tuple[str, ...]] = {
    PODS: (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    JOBS: ("status.successful",),
    NAMESPACES: ("status.phase",),
    NODES: ("spec.unschedulable",),
    SECRETS: ("type",),
    EVENTS: (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}
"""Fields that can be selected by, besides metadata.name and metadata.namespace."""

_SET = re.compile(r"^\s*([\w./-]+)\s+(in|notin)\s*\(([^)]*)\)\s*$")
_EQUAL = re.compile(r"^\s*([\w./-]+)\s*(==|=|!=)\s*([\w.-]*)\s*$")
_KEY = re.compile(r"^\s*(!?)\s*([\w./-]+)\s*$")


def parse_labels(text: str) -> Matcher:
    """Return whether labels match a selector such as `a=b,c!=d,e in (f,g),!h`."""
    requirements = [_parse_requirement(part) for part in re.split(r",(?![^(]*\))", text) if part.strip()]
    return lambda thing: all(holds(labels_of(thing)) for holds in requirements)


def _parse_requirement(text: str) -> Callable[[dict[str, str]], bool]:
    if match := _SET.match(text):
        key, operator, listed = match.groups()
        values = {value.strip() for value in listed.split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUAL.match(text):
        key, operator, value = match.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match := _KEY.match(text):
        negated, key = match.groups()
        return lambda labels: (key in labels) is not bool(negated)
    words = text.split()
    expected = ", expected: in, notin, =, ==, !=, gt, lt" if len(words) > 1 else ""
    raise bad_request(f"unable to parse requirement: found '{words[min(1, len(words) - 1)]}'{expected}")


def match_labels(selector: Json) -> Matcher:
    """Return whether labels match a metav1.LabelSelector that has matchLabels alone."""
    wanted: dict[str, str] = selector.get("matchLabels") or {}
    return lambda thing: wanted.items() <= labels_of(thing).items()


def parse_fields(resource: Resource, text: str) -> Matcher:
    """Return whether fields match a selector such as `metadata.name=a,status.phase!=Running`."""
    checks: list[Matcher] = []
    for part in filter(str.strip, text.split(",")):
        match = re.match(r"^\s*([\w.]+)\s*(==|=|!=)\s*(.*?)\s*$", part)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        path, operator, value = match.groups()
        if path not in ("metadata.name", "metadata.namespace", *FIELDS.get(resource, ())):
            unknown = f'Unable to find "{resource.api_version}, Resource={resource.plural}" that match label selector'
            raise bad_request(f'{unknown} "", field selector "{text}": field label not supported: {path}')
        checks.append(_field_check(path, value, operator != "!="))
    return lambda thing: all(holds(thing) for holds in checks)


def _field_check(path: str, value: str, shall_equal: bool) -> Matcher:
    return lambda thing: (_field(thing, path) == value) is shall_equal


def _field(thing: Json, path: str) -> str:
    if path == "status.successful":
        return str(thing.get("status", {}).get("succeeded", 0))
    if path in ("spec.hostNetwork", "spec.unschedulable"):
        return str(bool(thing.get("spec", {}).get(path.partition(".")[2]))).lower()
    if path == "source":
        return thing.get("source", {}).get("component", "")
    found: object = thing
    for member in path.split("."):
        found = found.get(member, "") if isinstance(found, dict) else ""
    return str(found)
