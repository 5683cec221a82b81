"""Pods behave as their test wants, and show it as a real kubelet does."""

import subprocess
import sys
from typing import Any

import pytest
from kubernetes import client, watch

from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake.controllers import behaviours
from tests.kubernetes.fake_tests.answers import conditions_by_type, refuse
from tests.kubernetes.fake_tests.manifests import make_job, make_pod
from tests.patience import wait_until


def status_of(cluster: Cluster, name: str = "p") -> dict[str, Any]:
    """Return the status of a pod."""
    return next(pod for pod in cluster.pods() if pod["metadata"]["name"] == name)["status"]


def test_a_pod_goes_through_its_stages_one_by_one(cluster: Cluster, core: client.CoreV1Api) -> None:
    version = core.list_namespaced_pod("default").metadata.resource_version
    cluster.kubelet.on_start("p", behaviours.exit_with(0))
    core.create_namespaced_pod("default", make_pod())
    cluster.settle()
    seen = []
    watcher = watch.Watch()
    for event in watcher.stream(core.list_namespaced_pod, "default", resource_version=version):
        status = event["object"].status
        states = [one.state for one in status.container_statuses or []]
        seen.append((status.phase, states[0].waiting.reason if states and states[0].waiting else None))
        if status.phase == "Succeeded":
            watcher.stop()
    expected = [("Pending", None), ("Pending", None), ("Pending", "ContainerCreating"), ("Running", None)]
    assert seen == [*expected, ("Succeeded", None)]


def test_a_running_pod_is_ready_and_has_addresses(cluster: Cluster, core: client.CoreV1Api) -> None:
    core.create_namespaced_pod("default", make_pod())
    cluster.settle()
    status = core.read_namespaced_pod("p", "default").status
    assert (status.phase, status.qos_class) == ("Running", "Burstable")
    assert status.pod_ip
    assert status.host_ip
    container = status.container_statuses[0]
    assert (container.ready, container.started, container.restart_count) == (True, True, 0)
    assert container.container_id.startswith("containerd://")
    assert {one.type: one.status for one in status.conditions} == {
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
        "PodScheduled": "True",
    }


def test_a_container_that_fails_says_how(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.kubelet.on_start("p", behaviours.exit_with(3, "disk full"))
    core.create_namespaced_pod("default", make_pod())
    cluster.settle()
    pod = core.read_namespaced_pod("p", "default")
    terminated = pod.status.container_statuses[0].state.terminated
    assert pod.status.phase == "Failed"
    assert (terminated.exit_code, terminated.reason, terminated.message) == (3, "Error", "disk full")
    ready = conditions_by_type({"status": status_of(cluster)})["Ready"]
    assert (ready["status"], ready["reason"]) == ("False", "PodFailed")


def test_a_container_without_memory_is_killed(cluster: Cluster, core: client.CoreV1Api) -> None:
    core.create_namespaced_pod("default", make_pod())
    cluster.settle()
    cluster.kubelet.run_out_of_memory("p")
    cluster.settle()
    terminated = core.read_namespaced_pod("p", "default").status.container_statuses[0].state.terminated
    assert (terminated.exit_code, terminated.reason) == (137, "OOMKilled")


def test_an_image_that_is_not_there_is_pulled_again_and_again(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.kubelet.on_start("p", behaviours.fail_to_pull("manifest unknown"))
    core.create_namespaced_pod("default", make_pod())
    for _ in range(2):
        cluster.step()
    waiting = status_of(cluster)["containerStatuses"][0]["state"]["waiting"]
    assert waiting == {"reason": "ErrImagePull", "message": "manifest unknown"}
    cluster.settle()
    waiting = status_of(cluster)["containerStatuses"][0]["state"]["waiting"]
    assert waiting["reason"] == "ImagePullBackOff"
    image = "registry.example/trainer:1"
    assert waiting["message"] == f'Back-off pulling image "{image}": ErrImagePull: manifest unknown'
    cluster.kubelet.change("p", behaviours.run())
    cluster.settle()
    assert status_of(cluster)["phase"] == "Running"


def test_a_container_waits_for_the_secret_that_it_refers_to(cluster: Cluster, core: client.CoreV1Api) -> None:
    reference = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    container = {"name": "main", "image": "x:1", "env": [reference]}
    core.create_namespaced_pod("default", make_pod(containers=[container]))
    cluster.settle()
    waiting = status_of(cluster)["containerStatuses"][0]["state"]["waiting"]
    assert waiting == {"reason": "CreateContainerConfigError", "message": 'secret "s" not found'}
    core.create_namespaced_secret("default", {"metadata": {"name": "s"}, "stringData": {"other": "1"}})
    cluster.settle()
    waiting = status_of(cluster)["containerStatuses"][0]["state"]["waiting"]
    assert waiting["message"] == "couldn't find key k in Secret default/s"
    core.patch_namespaced_secret("s", "default", {"stringData": {"k": "1"}})
    cluster.settle()
    assert status_of(cluster)["phase"] == "Running"


def test_a_pod_waits_for_the_volume_that_it_mounts(cluster: Cluster, core: client.CoreV1Api) -> None:
    mount = {"name": "config", "mountPath": "/config"}
    container = {"name": "main", "image": "x:1", "volumeMounts": [mount]}
    volume = {"name": "config", "configMap": {"name": "c"}}
    core.create_namespaced_pod("default", make_pod(containers=[container], volumes=[volume]))
    cluster.settle()
    assert status_of(cluster)["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
    (event,) = core.list_namespaced_event("default", field_selector="reason=FailedMount").items
    assert event.message == 'MountVolume.SetUp failed for volume "config" : configmap "c" not found'
    core.create_namespaced_config_map("default", {"metadata": {"name": "c"}})
    cluster.settle()
    assert status_of(cluster)["phase"] == "Running"


def test_a_claim_for_one_node_holds_pods_on_others_back(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.nodes.add("node-1")
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    core.create_namespaced_persistent_volume_claim("default", {"metadata": {"name": "data"}, "spec": claim})
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    for number, name in enumerate(("p", "q")):
        pod = make_pod(name, volumes=[volume], nodeSelector={"kubernetes.io/hostname": f"node-{number}"})
        core.create_namespaced_pod("default", pod)
        cluster.settle()
    assert core.read_namespaced_persistent_volume_claim("data", "default").status.phase == "Bound"
    assert (status_of(cluster, "p")["phase"], status_of(cluster, "q")["phase"]) == ("Running", "Pending")
    (event,) = core.list_namespaced_event("default", field_selector="reason=FailedAttachVolume").items
    assert event.message == 'Multi-Attach error for volume "data" Volume is already used by pod(s) p'


def test_the_end_of_the_log_may_be_the_message(cluster: Cluster, core: client.CoreV1Api) -> None:
    container = {"name": "main", "image": "x:1", "terminationMessagePolicy": "FallbackToLogsOnError"}
    core.create_namespaced_pod("default", make_pod(containers=[container]))
    cluster.settle()
    cluster.kubelet.write_log("p", "step 1\nout of disk\n")
    cluster.kubelet.end("p", 1)
    cluster.settle()
    terminated = status_of(cluster)["containerStatuses"][0]["state"]["terminated"]
    assert terminated["message"] == "step 1\nout of disk\n"


def test_an_evicted_pod_stays_as_failed(cluster: Cluster, core: client.CoreV1Api) -> None:
    message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 60Mi. "
    cluster.kubelet.on_start("p", behaviours.be_evicted(message))
    core.create_namespaced_pod("default", make_pod())
    cluster.settle()
    status = status_of(cluster)
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Evicted", message)
    disruption = conditions_by_type({"status": status})["DisruptionTarget"]
    assert (disruption["status"], disruption["reason"]) == ("True", "TerminationByKubelet")


def test_the_eviction_api_deletes_with_a_condition(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.kubelet.on_start(None, behaviours.ignore_sigterm())
    core.create_namespaced_pod("default", make_pod())
    cluster.settle()
    eviction = {"metadata": {"name": "p", "namespace": "default"}}
    core.create_namespaced_pod_eviction("p", "default", eviction)
    pod = core.read_namespaced_pod("p", "default")
    assert pod.metadata.deletion_timestamp
    disruption = conditions_by_type({"status": status_of(cluster)})["DisruptionTarget"]
    assert (disruption["reason"], disruption["message"]) == ("EvictionByEvictionAPI", "Eviction API: evicting")


def test_a_pod_that_never_started_is_failed_when_it_is_deleted(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.kubelet.on_start("p", behaviours.stay_in_creation())
    core.create_namespaced_pod("default", make_pod())
    core.patch_namespaced_pod("p", "default", {"metadata": {"finalizers": ["example.org/hold"]}})
    cluster.settle()
    core.delete_namespaced_pod("p", "default")
    cluster.settle()
    status = status_of(cluster)
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"] == {
        "exitCode": 137,
        "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was terminated",
    }


def test_a_pod_may_end_well_on_sigterm(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.kubelet.on_start("p", behaviours.end_on_sigterm(0, "saved at step 100"))
    core.create_namespaced_pod("default", make_pod())
    core.patch_namespaced_pod("p", "default", {"metadata": {"finalizers": ["example.org/hold"]}})
    cluster.settle()
    core.delete_namespaced_pod("p", "default")
    cluster.settle()
    status = status_of(cluster)
    assert status["phase"] == "Succeeded"
    assert status["containerStatuses"][0]["state"]["terminated"]["message"] == "saved at step 100"


def test_a_container_runs_for_as_long_as_it_is_told(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.kubelet.on_start("p", behaviours.exit_with(0, after_seconds=60))
    core.create_namespaced_pod("default", make_pod())
    cluster.settle()
    cluster.advance(59)
    assert status_of(cluster)["phase"] == "Running"
    cluster.advance(1)
    assert status_of(cluster)["phase"] == "Succeeded"


def test_init_containers_come_first(cluster: Cluster, core: client.CoreV1Api) -> None:
    core.create_namespaced_pod("default", make_pod(initContainers=[{"name": "fetch", "image": "x:1"}]))
    cluster.step()
    assert status_of(cluster)["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"
    assert conditions_by_type({"status": status_of(cluster)})["Initialized"]["status"] == "False"
    cluster.settle()
    first = status_of(cluster)["initContainerStatuses"][0]
    assert first["state"]["terminated"]["reason"] == "Completed"


def test_the_log_of_a_pod_is_read_and_followed(cluster: Cluster, core: client.CoreV1Api) -> None:
    core.create_namespaced_pod("default", make_pod())
    assert refuse(lambda: core.read_namespaced_pod_log("p", "default"))["message"] == (
        "pod p does not have a host assigned"
    )
    cluster.settle()
    cluster.kubelet.write_log("p", "one\ntwo\n")
    assert core.read_namespaced_pod_log("p", "default") == "one\ntwo\n"
    assert core.read_namespaced_pod_log("p", "default", tail_lines=1) == "two\n"
    cluster.kubelet.write_log("p", "three\n")
    cluster.kubelet.end("p", 0)
    cluster.settle()
    assert list(watch.Watch().stream(core.read_namespaced_pod_log, "p", "default")) == ["one", "two", "three"]


def test_a_container_that_waits_has_no_log(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.kubelet.on_start("p", behaviours.fail_to_pull())
    core.create_namespaced_pod("default", make_pod())
    cluster.settle()
    message = refuse(lambda: core.read_namespaced_pod_log("p", "default"))["message"]
    assert message == 'container "main" in pod "p" is waiting to start: trying and failing to pull image'


class Program:
    """Real process in the place of a container."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, _: dict[str, Any]) -> None:
        """Start it."""
        self.process = subprocess.Popen([sys.executable, "-c", self.source], stdout=subprocess.PIPE)

    def poll(self, _: dict[str, Any]) -> int | None:
        """Return the exit code as a container has it: 128 and the signal's number for one that a signal ended."""
        assert self.process is not None
        code = self.process.poll()
        return None if code is None else code if code >= 0 else 128 - code

    def terminate(self, _: dict[str, Any]) -> None:
        """Ask it to end."""
        assert self.process is not None
        self.process.terminate()

    def kill(self, _: dict[str, Any]) -> None:
        """End it."""
        assert self.process is not None
        self.process.kill()


def test_a_process_on_a_lost_node_goes_on_after_its_pod_is_removed(cluster: Cluster, core: client.CoreV1Api) -> None:
    program = Program("import time; time.sleep(600)")
    cluster.kubelet.on_start("p", behaviours.run_process(program))
    core.create_namespaced_pod("default", make_pod())
    cluster.settle()
    cluster.nodes.stop("node-0")
    core.delete_namespaced_pod("p", "default", grace_period_seconds=0)
    cluster.settle()
    assert program.poll({}) is None
    cluster.nodes.start("node-0")
    cluster.settle()
    assert program.process is not None
    assert program.process.wait() == -9


@pytest.fixture
def live_cluster() -> Any:
    """Cluster whose controllers run by themselves, with time going on."""
    with Cluster(ticking=True) as fake:
        fake.run_in_background()
        yield fake


def test_a_real_process_may_run_in_the_place_of_a_container(live_cluster: Cluster) -> None:
    live_cluster.kubelet.on_start(0, behaviours.run_process(Program("raise SystemExit(64)")))
    core = client.BatchV1Api(live_cluster.api_client())
    core.create_namespaced_job("default", make_job(pods=1))
    wait_until(lambda: len(live_cluster.job("j")["status"].get("conditions", [])) == 2)
    state = live_cluster.pods("j")[0]["status"]["containerStatuses"][0]["state"]
    assert state["terminated"]["exitCode"] == 64


def test_a_real_process_is_ended_with_its_pod(live_cluster: Cluster) -> None:
    program = Program("import time; print('up', flush=True); time.sleep(600)")
    live_cluster.kubelet.on_start(0, behaviours.run_process(program))
    batch = client.BatchV1Api(live_cluster.api_client())
    batch.create_namespaced_job("default", make_job(pods=1))
    wait_until(lambda: program.process)
    assert program.process is not None
    batch.delete_namespaced_job("j", "default", propagation_policy="Foreground")
    wait_until(lambda: not live_cluster.pods("j"))
    assert program.process.wait() == -15
