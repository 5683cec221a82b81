"""LimitRanges: defaults and bounds of what containers ask for."""

from tests.kubernetes.fake.errors import forbidden
from tests.kubernetes.fake.quantities import parse_quantity
from tests.kubernetes.fake.resources import LIMIT_RANGES, PODS, Json
from tests.kubernetes.fake.store import Store


def apply_limit_ranges(store: Store, pod: Json) -> None:
    """Fill in the defaults of the namespace's LimitRanges. Raise 403 for a container out of their bounds."""
    for limit_range in store.list_all(LIMIT_RANGES, pod["metadata"]["namespace"]):
        for item in limit_range["spec"]["limits"]:
            if item["type"] != "Container":
                continue
            for container in [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]:
                _fill(container, item)
                _check(pod, container, item)


def _fill(container: Json, item: Json) -> None:
    resources: Json = container.setdefault("resources", {})
    for name, amount in (item.get("default") or {}).items():
        resources.setdefault("limits", {}).setdefault(name, amount)
    for name, amount in (item.get("defaultRequest") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, amount)


def _check(pod: Json, container: Json, item: Json) -> None:
    resources: Json = container["resources"]
    for name, most in (item.get("max") or {}).items():
        given = (resources.get("limits") or {}).get(name)
        if given is None:
            _refuse(pod, f"maximum {name} usage per Container is {most}.  No limit is specified")
        elif parse_quantity(given) > parse_quantity(most):
            _refuse(pod, f"maximum {name} usage per Container is {most}, but limit is {given}")
    for name, least in (item.get("min") or {}).items():
        given = (resources.get("requests") or {}).get(name)
        if given is None:
            _refuse(pod, f"minimum {name} usage per Container is {least}.  No request is specified")
        elif parse_quantity(given) < parse_quantity(least):
            _refuse(pod, f"minimum {name} usage per Container is {least}, but request is {given}")


def _refuse(pod: Json, why: str) -> None:
    raise forbidden(PODS, pod["metadata"]["name"], why)
