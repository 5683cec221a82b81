"""Pod templates of the manifests: rights, limits, probes, and what Kubernetes would add by itself."""

import copy
import functools
import operator
from typing import Any

import pytest

from tests.deploy.pod_security import list_containers, list_violations
from tests.deploy.rendering import OVERLAYS, find_pod_templates, render

Pod = dict[str, Any]
USER = 10_001


def list_pods() -> list[Pod]:
    templates = [template for name in OVERLAYS for template in find_pod_templates(render(f"overlays/{name}"))]
    assert len(templates) >= len(OVERLAYS)
    return [template["spec"] for template in templates]


def test_every_pod_is_within_restricted() -> None:
    for pod in list_pods():
        assert list_violations(pod) == []


def test_every_pod_runs_as_the_user_of_the_image_in_a_read_only_root() -> None:
    for pod in list_pods():
        context = pod["securityContext"]
        assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (USER, USER, USER)
        for container in list_containers(pod):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_every_container_has_requests_and_limits() -> None:
    resources = {"cpu", "memory", "ephemeral-storage"}
    for pod in list_pods():
        for container in list_containers(pod):
            assert set(container["resources"]["requests"]) == resources
            assert set(container["resources"]["limits"]) == resources
        for volume in pod["volumes"]:
            assert "emptyDir" not in volume or volume["emptyDir"]["sizeLimit"], volume["name"]


def test_the_probes_ask_what_restarts_mend() -> None:
    for pod in list_pods():
        (container,) = pod["containers"]
        startup, liveness, readiness = (container[f"{name}Probe"] for name in ("startup", "liveness", "readiness"))
        # A database that is away makes /readyz fail, and is mended by no restart.
        assert (startup["httpGet"]["path"], liveness["httpGet"]["path"]) == ("/healthz", "/healthz")
        assert readiness["httpGet"]["path"] == "/readyz"
        for probe in (startup, liveness, readiness):
            assert probe["httpGet"]["port"] in {port["name"] for port in container["ports"]}
            assert probe["timeoutSeconds"] >= 5
        # The service waits 30 seconds for its database, and then migrates it.
        assert startup["periodSeconds"] * startup["failureThreshold"] >= 300
        assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 60


def test_the_end_of_a_pod_leaves_time_for_requests_in_progress() -> None:
    for pod in list_pods():
        (container,) = pod["containers"]
        pause = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
        assert pause[0] == "sleep"
        assert pod["terminationGracePeriodSeconds"] - int(pause[1]) >= 30


def test_the_process_that_hands_signals_on_stays_process_1() -> None:
    for pod in list_pods():
        for container in list_containers(pod):
            assert "command" not in container
            assert container["args"]


def test_kubernetes_sets_no_variables_that_look_like_settings() -> None:
    # Of a Service `dlrm` it would make DLRM_PORT=tcp://10.0.0.1:8080.
    for pod in list_pods():
        assert pod["enableServiceLinks"] is False


LOOSER: list[tuple[str, Any]] = [
    ("containers.0.securityContext.privileged", True),
    ("containers.0.securityContext.allowPrivilegeEscalation", None),
    ("containers.0.securityContext.capabilities", None),
    ("containers.0.securityContext.capabilities.add", ["SYS_PTRACE"]),
    ("containers.0.securityContext.runAsUser", 0),
    ("containers.0.securityContext.seccompProfile", {"type": "Unconfined"}),
    ("containers.0.securityContext.procMount", "Unmasked"),
    ("containers.0.ports.0.hostPort", 80),
    ("containers.0.livenessProbe.httpGet.host", "10.0.0.1"),
    ("securityContext.runAsNonRoot", None),
    ("securityContext.runAsUser", 0),
    ("securityContext.seccompProfile", None),
    ("securityContext.appArmorProfile", {"type": "Unconfined"}),
    ("securityContext.sysctls", [{"name": "kernel.msgmax", "value": "1"}]),
    ("securityContext.seLinuxOptions", {"type": "spc_t"}),
    ("securityContext.windowsOptions", {"hostProcess": True}),
    ("volumes.0", {"name": "host", "hostPath": {"path": "/"}}),
    ("hostNetwork", True),
    ("hostPID", True),
    ("hostIPC", True),
]
"""Places in a pod, and values with which it takes more than `restricted` allows; None removes what is there."""


@pytest.mark.parametrize(("place", "value"), LOOSER, ids=[place for place, _ in LOOSER])
def test_a_pod_that_takes_more_is_found(place: str, value: Any) -> None:
    pod: Any = copy.deepcopy(list_pods()[0])
    *above, last = [int(step) if step.isdigit() else step for step in place.split(".")]
    part = functools.reduce(operator.getitem, above, pod)
    part[last] = value
    if value is None:
        del part[last]
    assert len(list_violations(pod)) == 1
