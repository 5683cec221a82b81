"""Environment and arguments of a container, as a kubelet makes them."""

import base64
import re

from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake.resources import SECRETS, Json

# An escaped dollar, or the reference to a variable.
_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


def make_variables(cluster: Cluster, pod: Json) -> dict[str, str]:
    """Make the variables that the pod names for its container, and those that every container has."""
    container = pod["spec"]["containers"][0]
    made = {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        "HOSTNAME": pod["spec"]["hostname"],
    }
    for source in container.get("envFrom") or []:
        secret = cluster.get(SECRETS, source["secretRef"]["name"])
        made |= {name: base64.b64decode(text).decode() for name, text in (secret.get("data") or {}).items()}
    for variable in container.get("env") or []:
        value: str = variable.get("value") or ""
        if "valueFrom" in variable:
            value = _read_field(pod, variable["valueFrom"]["fieldRef"]["fieldPath"])
        made[variable["name"]] = expand(value, made)
    return made


def expand(text: str, variables: dict[str, str]) -> str:
    """Fill in the variables that a text refers to; what is not known stays as it is."""

    def replace(match: re.Match[str]) -> str:
        name: str | None = match[1]
        return "$" if name is None else variables.get(name, match[0])

    return _REFERENCE.sub(replace, text)


def _read_field(pod: Json, path: str) -> str:
    match = _FIELD.fullmatch(path)
    assert match is not None, f"no kubelet of the tests reads {path}"
    return pod["metadata"][match[1]][match[2]]
