"""Resources of a cluster that jobs may occupy: pure functions of its nodes, or of the quotas of a namespace."""

from collections.abc import Sequence
from decimal import Decimal
from operator import itemgetter

from kubernetes.utils import parse_quantity  # pyright: ignore[reportUnknownVariableType]

from service.launchers.kubernetes.objects import Object, get_labels, get_part, get_parts, get_text, is_true
from service.launchers.kubernetes.options import KubernetesOptions
from service.launchers.protocol import MAX_NODES, UNLIMITED, Capacity, LauncherCapacity, NamedCapacity


def sum_nodes(nodes: Sequence[Object], options: KubernetesOptions) -> LauncherCapacity:
    """Sum up what the usable nodes have for pods."""
    usable = [node for node in nodes if _is_usable(node, options)]
    capacities = [_read_allocatable(node, options.gpu_resource) for node in usable]
    total = largest = Capacity(0, 0, 0)
    for capacity in capacities:
        total = total.plus(capacity)
        # The most of each resource: a job that needs more of one of them fits no node.
        largest = largest.combine(capacity, max)
    names = (get_text(node, "metadata", "name") for node in usable)
    by_name = sorted(zip(names, capacities, strict=True), key=itemgetter(0))[:MAX_NODES]
    named = tuple(NamedCapacity(name, capacity) for name, capacity in by_name)
    return LauncherCapacity(total, largest, is_fixed=False, machines=_choose_largest(capacities), nodes=named)


def _choose_largest(capacities: Sequence[Capacity]) -> tuple[Capacity, ...]:
    """Choose the kinds of nodes that no other kind exceeds: a job that fits none of them fits no node."""
    kinds = set(capacities)
    largest = [one for one in kinds if not any(other != one and other.has_room_for(one) for other in kinds)]
    return tuple(sorted(largest, key=lambda one: (one.num_cores, one.memory_bytes, one.num_gpus)))


def sum_quotas(quotas: Sequence[Object], gpu_resource: str) -> LauncherCapacity | None:
    """Return what quotas allow all pods of a namespace together; None if none limits cores or memory."""
    hard = [get_part(quota, "status", "hard") for quota in quotas]
    cores = _find_least(hard, ("limits.cpu", "requests.cpu", "cpu"))
    memory = _find_least(hard, ("limits.memory", "requests.memory", "memory"))
    if cores is None and memory is None:
        return None
    gpus = _find_least(hard, (f"requests.{gpu_resource}",))
    total = Capacity(
        UNLIMITED.num_cores if cores is None else int(cores),
        UNLIMITED.memory_bytes if memory is None else int(memory),
        int(gpus or 0),
    )
    return LauncherCapacity(total, total, is_fixed=False)


def _is_usable(node: Object, options: KubernetesOptions) -> bool:
    labels = get_labels(node)
    is_selected = all(labels.get(name) == value for name, value in options.node_selector.items())
    return (
        is_true(node, "Ready")
        and is_selected
        and not get_part(node, "spec").get("unschedulable")
        and _tolerates(node, options)
    )


def _tolerates(node: Object, options: KubernetesOptions) -> bool:
    """Whether pods of the service may be placed on a node, whatever taints it has."""
    taints = [taint for taint in get_parts(node, "spec", "taints") if taint.get("effect") != "PreferNoSchedule"]
    return all(any(_matches(toleration, taint) for toleration in options.tolerations) for taint in taints)


def _matches(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and (toleration.get("value") or "") == (taint.get("value") or "")


def _read_allocatable(node: Object, gpu_resource: str) -> Capacity:
    amounts = get_part(node, "status", "allocatable")
    cores, memory, gpus = (_parse(amounts.get(name, "0")) for name in ("cpu", "memory", gpu_resource))
    return Capacity(int(cores), int(memory), int(gpus))


def _find_least(hard: Sequence[Object], names: Sequence[str]) -> Decimal | None:
    return min((_parse(limits[name]) for limits in hard for name in names if name in limits), default=None)


def _parse(quantity: str) -> Decimal:
    return parse_quantity(quantity)
