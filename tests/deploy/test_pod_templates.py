"""Pod templates of the manifests: rights, limits, probes, and what Kubernetes would add by itself."""

import copy
from collections.abc import Callable
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


def test_every_pod_runs_as_the_user_of_the_image_in_a_root_that_it_cannot_write_to() -> None:
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
            assert probe["httpGet"]["port"] == container["ports"][0]["name"]
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


def allow_privileges(pod: Pod) -> None:
    pod["containers"][0]["securityContext"]["privileged"] = True


def allow_escalation(pod: Pod) -> None:
    del pod["containers"][0]["securityContext"]["allowPrivilegeEscalation"]


def keep_capabilities(pod: Pod) -> None:
    del pod["containers"][0]["securityContext"]["capabilities"]


def add_capability(pod: Pod) -> None:
    pod["containers"][0]["securityContext"]["capabilities"]["add"] = ["SYS_PTRACE"]


def allow_root(pod: Pod) -> None:
    del pod["securityContext"]["runAsNonRoot"]


def be_root(pod: Pod) -> None:
    pod["securityContext"]["runAsUser"] = 0


def be_root_in_container(pod: Pod) -> None:
    pod["containers"][0]["securityContext"]["runAsUser"] = 0


def leave_out_seccomp(pod: Pod) -> None:
    del pod["securityContext"]["seccompProfile"]


def be_unconfined(pod: Pod) -> None:
    pod["containers"][0]["securityContext"]["seccompProfile"] = {"type": "Unconfined"}


def leave_apparmor(pod: Pod) -> None:
    pod["securityContext"]["appArmorProfile"] = {"type": "Unconfined"}


def use_host_path(pod: Pod) -> None:
    pod["volumes"].append({"name": "host", "hostPath": {"path": "/"}})


def use_host_network(pod: Pod) -> None:
    pod["hostNetwork"] = True


def use_host_processes(pod: Pod) -> None:
    pod["hostPID"] = True


def use_host_ipc(pod: Pod) -> None:
    pod["hostIPC"] = True


def use_host_port(pod: Pod) -> None:
    pod["containers"][0]["ports"][0]["hostPort"] = 80


def probe_another_host(pod: Pod) -> None:
    pod["containers"][0]["livenessProbe"]["httpGet"]["host"] = "10.0.0.1"


def unmask_proc(pod: Pod) -> None:
    pod["containers"][0]["securityContext"]["procMount"] = "Unmasked"


def set_sysctl(pod: Pod) -> None:
    pod["securityContext"]["sysctls"] = [{"name": "kernel.msgmax", "value": "1"}]


def set_selinux(pod: Pod) -> None:
    pod["securityContext"]["seLinuxOptions"] = {"type": "spc_t"}


def be_a_host_process(pod: Pod) -> None:
    pod["securityContext"]["windowsOptions"] = {"hostProcess": True}


@pytest.mark.parametrize(
    "loosen",
    [
        allow_privileges,
        allow_escalation,
        keep_capabilities,
        add_capability,
        allow_root,
        be_root,
        be_root_in_container,
        leave_out_seccomp,
        be_unconfined,
        leave_apparmor,
        use_host_path,
        use_host_network,
        use_host_processes,
        use_host_ipc,
        use_host_port,
        probe_another_host,
        unmask_proc,
        set_sysctl,
        set_selinux,
        be_a_host_process,
    ],
)
def test_a_pod_that_takes_more_is_found(loosen: Callable[[Pod], None]) -> None:
    pod = copy.deepcopy(list_pods()[0])
    loosen(pod)
    assert len(list_violations(pod)) == 1
