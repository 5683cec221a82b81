"""Reasons for which a node does not take a pod."""

from fractions import Fraction

from tests.kubernetes.fake.admission import pod_requests
from tests.kubernetes.fake.objects import labels_of
from tests.kubernetes.fake.quantities import parse_quantity
from tests.kubernetes.fake.resources import Json

NOT_SCHEDULABLE = "node(s) were unschedulable"
NOT_TOLERATED = "node(s) had untolerated taint(s)"
NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"


def find_reasons(pod: Json, node: Json, used: dict[str, Fraction]) -> tuple[list[str], bool]:
    """Return why a node does not take a pod, and whether other pods that leave could change that."""
    if node["spec"].get("unschedulable") and not tolerates(pod, _UNSCHEDULABLE_TAINT):
        return [NOT_SCHEDULABLE], False
    taints: list[Json] = node["spec"].get("taints") or []
    if any(one["effect"] in ("NoSchedule", "NoExecute") and not tolerates(pod, one) for one in taints):
        return [NOT_TOLERATED], False
    if not is_selected(pod, node):
        return [NOT_SELECTED], False
    lacking: list[str] = []
    is_resolvable = True
    offered = {name: parse_quantity(one) for name, one in (node["status"].get("allocatable") or {}).items()}
    for name, amount in sorted({**pod_requests(pod), "pods": Fraction(1)}.items(), key=_order):
        total = offered.get(name, Fraction(0))
        if amount and amount > total - used.get(name, Fraction(0)):
            lacking.append("Too many pods" if name == "pods" else f"Insufficient {name}")
            is_resolvable = is_resolvable and amount <= total
    return lacking, is_resolvable


_UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def _order(item: tuple[str, Fraction]) -> tuple[int, str]:
    first = ("pods", "cpu", "memory", "ephemeral-storage")
    return (first.index(item[0]) if item[0] in first else len(first), item[0])


def tolerates(pod: Json, taint: Json) -> bool:
    """Whether a pod tolerates a taint, be it for a time only."""
    return any(is_tolerated_by(one, taint) for one in pod["spec"].get("tolerations") or [])


def is_tolerated_by(toleration: Json, taint: Json) -> bool:
    """Whether a toleration is for a taint."""
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def is_selected(pod: Json, node: Json) -> bool:
    """Whether nodeSelector and the required node affinity of a pod match a node."""
    selector: dict[str, str] = pod["spec"].get("nodeSelector") or {}
    if not selector.items() <= labels_of(node).items():
        return False
    affinity: Json = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required: Json | None = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_matches_term(term, node) for term in required["nodeSelectorTerms"])


def _matches_term(term: Json, node: Json) -> bool:
    fields = {"metadata.name": node["metadata"]["name"]}
    return all(_matches(one, labels_of(node)) for one in term.get("matchExpressions") or []) and all(
        _matches(one, fields) for one in term.get("matchFields") or []
    )


def is_selected_by(selector: Json, thing: Json) -> bool:
    """Whether a metav1.LabelSelector matches the labels of an object."""
    labels = labels_of(thing)
    wanted: dict[str, str] = selector.get("matchLabels") or {}
    expressions: list[Json] = selector.get("matchExpressions") or []
    return wanted.items() <= labels.items() and all(_matches(one, labels) for one in expressions)


def _matches(expression: Json, labels: dict[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or []
    operator: str = expression["operator"]
    if operator in ("Gt", "Lt"):
        if value is None or not value.lstrip("-").isdigit():
            return False
        return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])
    return {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[operator]
