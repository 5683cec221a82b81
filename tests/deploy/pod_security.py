"""The Pod Security Standard `restricted`, as a list of what a pod does that it forbids."""

from collections.abc import Iterator
from typing import Any

ALLOWED_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
SAFE_SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
}
SELINUX_TYPES = {None, "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
PROFILES = {"RuntimeDefault", "Localhost"}


def list_violations(pod: dict[str, Any]) -> list[str]:
    """List what the specification of a pod does that `restricted` forbids."""
    found = list(_list_of_pod(pod))
    for container in list_containers(pod):
        found += _list_of_one(container, pod)
    return list(dict.fromkeys(found))


def list_containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("containers", []), *pod.get("initContainers", []), *pod.get("ephemeralContainers", [])]


def _list_of_pod(pod: dict[str, Any]) -> Iterator[str]:
    context = pod.get("securityContext") or {}
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(name):
            yield name
    for volume in pod.get("volumes", []):
        if not set(volume) - {"name"} <= ALLOWED_VOLUMES:
            yield f"volume {volume['name']}"
    for sysctl in context.get("sysctls", []):
        if sysctl["name"] not in SAFE_SYSCTLS:
            yield f"sysctl {sysctl['name']}"
    if context.get("runAsUser") == 0:
        yield "runAsUser of the pod"
    yield from _list_of_both(context, "the pod")


def _list_of_one(container: dict[str, Any], pod: dict[str, Any]) -> Iterator[str]:
    name, context = container["name"], container.get("securityContext") or {}
    of_pod = pod.get("securityContext") or {}
    capabilities = context.get("capabilities") or {}
    if context.get("privileged"):
        yield f"privileged of {name}"
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"allowPrivilegeEscalation of {name}"
    if "ALL" not in capabilities.get("drop", []) or not set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"}:
        yield f"capabilities of {name}"
    if context.get("runAsNonRoot", of_pod.get("runAsNonRoot")) is not True:
        yield f"runAsNonRoot of {name}"
    if context.get("runAsUser") == 0:
        yield f"runAsUser of {name}"
    if (context.get("seccompProfile") or of_pod.get("seccompProfile") or {}).get("type") not in PROFILES:
        yield f"seccompProfile of {name}"
    if context.get("procMount", "Default") != "Default":
        yield f"procMount of {name}"
    if any(port.get("hostPort") for port in container.get("ports", [])):
        yield f"hostPort of {name}"
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if "host" in ((container.get(probe) or {}).get("httpGet") or {}):
            yield f"host of the {probe} of {name}"
    yield from _list_of_both(context, name)


def _list_of_both(context: dict[str, Any], owner: str) -> Iterator[str]:
    """List what a pod and a container may set alike."""
    if (context.get("seccompProfile") or {}).get("type", "RuntimeDefault") not in PROFILES:
        yield f"seccompProfile of {owner}"
    if (context.get("appArmorProfile") or {}).get("type", "RuntimeDefault") not in PROFILES:
        yield f"appArmorProfile of {owner}"
    if (context.get("windowsOptions") or {}).get("hostProcess"):
        yield f"hostProcess of {owner}"
    selinux = context.get("seLinuxOptions") or {}
    if selinux.get("type") not in SELINUX_TYPES or selinux.get("user") or selinux.get("role"):
        yield f"seLinuxOptions of {owner}"
