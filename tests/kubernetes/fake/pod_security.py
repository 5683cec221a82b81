"""Pod security standards, as labels of a namespace enforce them."""

from collections.abc import Callable

from tests.kubernetes.fake.objects import labels_of
from tests.kubernetes.fake.resources import Json

ENFORCE = "pod-security.kubernetes.io/enforce"
WARN = "pod-security.kubernetes.io/warn"
_ALLOWED_VOLUMES = frozenset(
    [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ]
)


def describe_violations(namespace: Json, label: str, spec: Json) -> str:
    """Return how a pod violates the standard that a label of its namespace names, "" where it does not."""
    level = labels_of(namespace).get(label, "privileged")
    version = labels_of(namespace).get(f"{label}-version", "latest")
    if level == "privileged":
        return ""
    found = _find_baseline(spec) if level == "baseline" else _find_restricted(spec)
    return f'PodSecurity "{level}:{version}": {", ".join(found)}' if found else ""


def _containers(spec: Json) -> list[Json]:
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


def _context(part: Json) -> Json:
    return part.get("securityContext") or {}


def _named(spec: Json, is_wrong: Callable[[Json], bool]) -> str:
    """Return the containers for which something is wrong, as messages name them."""
    names = [f'"{one["name"]}"' for one in _containers(spec) if is_wrong(_context(one))]
    return f"container{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""


def _find_baseline(spec: Json) -> list[str]:
    found: list[str] = []
    if hosts := [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]:
        found.append(f"host namespaces ({', '.join(hosts)})")
    if volumes := [f'"{one["name"]}"' for one in spec.get("volumes") or [] if "hostPath" in one]:
        found.append(f"hostPath volumes (volume{'s' if len(volumes) > 1 else ''} {', '.join(volumes)})")
    if named := _named(spec, lambda context: bool(context.get("privileged"))):
        found.append(f"privileged ({named} must not set securityContext.privileged=true)")
    return found


def _find_restricted(spec: Json) -> list[str]:
    found: list[str] = []
    if named := _named(spec, lambda context: context.get("allowPrivilegeEscalation") is not False):
        found.append(
            f"allowPrivilegeEscalation != false ({named} must set securityContext.allowPrivilegeEscalation=false)"
        )
    if named := _named(spec, lambda context: "ALL" not in ((context.get("capabilities") or {}).get("drop") or [])):
        found.append(f'unrestricted capabilities ({named} must set securityContext.capabilities.drop=["ALL"])')
    found += _find_baseline(spec)
    for volume in spec.get("volumes") or []:
        for kind in set(volume) - {"name"} - _ALLOWED_VOLUMES:
            found.append(f'restricted volume types (volume "{volume["name"]}" uses restricted volume type "{kind}")')
    found += _find_user_violations(spec)
    if named := _named(spec, lambda context: not _has_seccomp(context) and not _has_seccomp(_context(spec))):
        kinds = 'seccompProfile.type to "RuntimeDefault" or "Localhost"'
        found.append(f"seccompProfile (pod or {named} must set securityContext.{kinds})")
    return found


def _find_user_violations(spec: Json) -> list[str]:
    found: list[str] = []
    is_set_for_pod = _context(spec).get("runAsNonRoot") is True
    if named := _named(spec, lambda context: context.get("runAsNonRoot", is_set_for_pod) is not True):
        found.append(f"runAsNonRoot != true (pod or {named} must set securityContext.runAsNonRoot=true)")
    if _context(spec).get("runAsUser") == 0:
        found.append("runAsUser=0 (pod must not set runAsUser=0)")
    if named := _named(spec, lambda context: context.get("runAsUser") == 0):
        found.append(f"runAsUser=0 ({named} must not set runAsUser=0)")
    return found


def _has_seccomp(context: Json) -> bool:
    return (context.get("seccompProfile") or {}).get("type") in ("RuntimeDefault", "Localhost")
