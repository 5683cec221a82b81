"""Pods find their nodes, or are told why not, and nodes are lost."""

from typing import Any

from kubernetes import client

from tests.kubernetes.fake.cluster import Cluster
from tests.kubernetes.fake.controllers import behaviours
from tests.kubernetes.fake_tests.answers import conditions_by_type, refuse
from tests.kubernetes.fake_tests.manifests import DISRUPTION_RULE, make_job, make_pod


def asking(**requests: str) -> list[dict[str, Any]]:
    """Return containers that ask for something."""
    amounts = {name.replace("gpu", "nvidia.com/gpu"): amount for name, amount in requests.items()}
    return [{"name": "main", "image": "x:1", "resources": {"requests": amounts, "limits": amounts}}]


def scheduled(cluster: Cluster, name: str = "p") -> dict[str, Any]:
    """Return the condition PodScheduled of a pod."""
    pod = next(pod for pod in cluster.pods() if pod["metadata"]["name"] == name)
    return conditions_by_type(pod)["PodScheduled"]


def test_a_pod_that_fits_nowhere_is_told_why(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.nodes.add("gpu", gpus=2, taints=[{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}])
    core.create_namespaced_pod("default", make_pod(containers=asking(cpu="1000")))
    cluster.settle()
    condition = scheduled(cluster)
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"] == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). no new claims to deallocate, "
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )
    (event,) = core.list_namespaced_event("default", field_selector="reason=FailedScheduling").items
    assert event.message == condition["message"]


def test_a_full_node_has_no_victims(cluster: Cluster, core: client.CoreV1Api) -> None:
    core.create_namespaced_pod("default", make_pod("a", containers=asking(cpu="5")))
    core.create_namespaced_pod("default", make_pod("p", containers=asking(cpu="5")))
    cluster.settle()
    assert scheduled(cluster)["message"].endswith("1 No preemption victims found for incoming pod.")
    cluster.kubelet.end("a")
    cluster.settle()
    assert scheduled(cluster)["status"] == "True", "a pod that has ended takes nothing"


def test_gpus_are_counted_and_tolerations_let_pods_in(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.nodes.add("gpu", gpus=2, taints=[{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}])
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists"}
    for name in ("a", "p"):
        pod = make_pod(name, containers=asking(cpu="1", gpu="2"), tolerations=[toleration])
        core.create_namespaced_pod("default", pod)
    cluster.settle()
    assert core.read_namespaced_pod("a", "default").spec.node_name == "gpu"
    assert scheduled(cluster)["message"].startswith("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")


def test_pods_spread_where_their_constraints_ask_for_it(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.nodes.add("node-1")
    for place in range(3):
        core.create_namespaced_pod("default", make_pod(f"other-{place}", nodeName="node-1"))
    constraint = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    spread = {**constraint, "labelSelector": {"matchLabels": {"app": "j"}}}
    core.create_namespaced_pod("default", make_pod("plain"))
    cluster.settle()
    assert core.read_namespaced_pod("plain", "default").spec.node_name == "node-0"
    pods = [make_pod(f"p-{place}", topologySpreadConstraints=[spread]) for place in range(4)]
    for pod in pods:
        pod["metadata"]["labels"] = {"app": "j"}
        core.create_namespaced_pod("default", pod)
    cluster.settle()
    nodes = [core.read_namespaced_pod(f"p-{place}", "default").spec.node_name for place in range(4)]
    assert nodes == ["node-0", "node-1"] * 2, "whatever else runs there"


def test_pods_that_would_spread_share_a_node_where_they_must(cluster: Cluster, core: client.CoreV1Api) -> None:
    constraint = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    for name in ("a", "b"):
        selector = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
        pod = make_pod(name, topologySpreadConstraints=[{**constraint, "labelSelector": selector}])
        pod["metadata"]["labels"] = {"app": "j"}
        core.create_namespaced_pod("default", pod)
    cluster.settle()
    assert {pod["spec"]["nodeName"] for pod in cluster.pods()} == {"node-0"}


def test_a_node_selector_and_affinity_choose_nodes(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.nodes.add("b", labels={"zone": "b"})
    core.create_namespaced_pod("default", make_pod("a", nodeSelector={"zone": "b"}))
    expression = {"key": "zone", "operator": "NotIn", "values": ["b"]}
    term = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    core.create_namespaced_pod("default", make_pod("p", affinity=affinity))
    core.create_namespaced_pod("default", make_pod("q", nodeSelector={"zone": "c"}))
    cluster.settle()
    assert core.read_namespaced_pod("a", "default").spec.node_name == "b"
    assert core.read_namespaced_pod("p", "default").spec.node_name == "node-0"
    assert "2 node(s) didn't match Pod's node affinity/selector" in scheduled(cluster, "q")["message"]


def test_a_cordoned_node_and_a_missing_claim_keep_pods_waiting(cluster: Cluster, core: client.CoreV1Api) -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}
    core.create_namespaced_pod("default", make_pod("q", volumes=[volume]))
    cluster.nodes.cordon("node-0")
    core.create_namespaced_pod("default", make_pod())
    cluster.settle()
    assert "1 node(s) were unschedulable" in scheduled(cluster)["message"]
    assert 'persistentvolumeclaim "missing" not found' in scheduled(cluster, "q")["message"]
    cluster.nodes.cordon("node-0", is_schedulable=True)
    cluster.settle()
    assert scheduled(cluster)["status"] == "True"


def test_a_scheduling_gate_holds_a_pod_back(cluster: Cluster, core: client.CoreV1Api) -> None:
    created = core.create_namespaced_pod("default", make_pod(schedulingGates=[{"name": "example.org/gate"}]))
    assert created.status.conditions[0].reason == "SchedulingGated"
    cluster.settle()
    assert scheduled(cluster)["reason"] == "SchedulingGated"


def test_without_nodes_the_scheduler_says_so() -> None:
    with Cluster(num_nodes=0) as cluster:
        client.CoreV1Api(cluster.api_client()).create_namespaced_pod("default", make_pod())
        cluster.settle()
        assert scheduled(cluster)["message"] == "no nodes available to schedule pods"


def test_a_pod_of_higher_priority_preempts(cluster: Cluster, core: client.CoreV1Api, batch: client.BatchV1Api) -> None:
    scheduling = client.SchedulingV1Api(cluster.api_client())
    scheduling.create_priority_class({"metadata": {"name": "high"}, "value": 1000})
    policy = {"rules": [DISRUPTION_RULE]}
    job = make_job(pods=1, podFailurePolicy=policy, pod_spec={"containers": asking(cpu="6")})
    batch.create_namespaced_job("default", job)
    cluster.settle()
    core.create_namespaced_pod("default", make_pod(priorityClassName="high", containers=asking(cpu="6")))
    cluster.step()
    waiting = core.read_namespaced_pod("p", "default").status
    assert waiting.nominated_node_name == "node-0"
    assert waiting.conditions[0].message == "0/1 nodes are available: 1 Insufficient cpu."
    cluster.settle()
    assert core.read_namespaced_pod("p", "default").status.phase == "Running"
    condition = cluster.job("j")["status"]["conditions"][-1]
    assert (condition["type"], condition["reason"]) == ("Failed", "PodFailurePolicy")
    (event,) = core.list_namespaced_event("default", field_selector="reason=Preempted").items
    assert event.message.startswith("Preempted by pod ")


def test_pods_of_a_lost_node_stay_until_it_is_back(cluster: Cluster, core: client.CoreV1Api) -> None:
    core.create_namespaced_pod("default", make_pod())
    cluster.settle()
    cluster.nodes.stop("node-0")
    cluster.advance(49)
    node = core.read_node("node-0")
    assert {one.type: one.status for one in node.status.conditions}["Ready"] == "True"
    cluster.advance(1)
    node = core.read_node("node-0")
    assert {one.type: one.status for one in node.status.conditions}["Ready"] == "Unknown"
    taints = [(one.key, one.effect) for one in node.spec.taints]
    assert taints == [("node.kubernetes.io/unreachable", effect) for effect in ("NoSchedule", "NoExecute")]
    pod = cluster.pods()[0]
    assert conditions_by_type(pod)["Ready"]["status"] == "False"
    assert pod["status"]["phase"] == "Running"

    cluster.advance(299)
    assert "deletionTimestamp" not in cluster.pods()[0]["metadata"]
    cluster.advance(1)
    pod = cluster.pods()[0]
    assert pod["metadata"]["deletionTimestamp"]
    disruption = conditions_by_type(pod)["DisruptionTarget"]
    assert disruption["reason"] == "DeletionByTaintManager"
    assert disruption["message"] == "Taint manager: deleting due to NoExecute taint"
    cluster.advance(3600)
    assert len(cluster.pods()) == 1, "nobody is there to say that its containers have ended"
    cluster.nodes.start("node-0")
    cluster.settle()
    assert cluster.pods() == []


def test_a_pod_of_a_lost_node_is_removed_by_force(cluster: Cluster, core: client.CoreV1Api) -> None:
    core.create_namespaced_pod("default", make_pod())
    cluster.settle()
    cluster.nodes.stop("node-0")
    cluster.advance(350)
    core.delete_namespaced_pod("p", "default", grace_period_seconds=0)
    assert refuse(lambda: core.read_namespaced_pod("p", "default"))["code"] == 404


def test_pods_of_a_removed_node_are_collected_after_a_while(cluster: Cluster, batch: client.BatchV1Api) -> None:
    policy = {"rules": [DISRUPTION_RULE]}
    batch.create_namespaced_job("default", make_job(pods=1, podFailurePolicy=policy))
    cluster.settle()
    name = cluster.pods("j")[0]["metadata"]["name"]
    cluster.nodes.remove("node-0")
    cluster.settle()
    cluster.advance(39)
    assert cluster.pods("j")[0]["status"]["phase"] == "Running"
    cluster.advance(1)
    condition = cluster.job("j")["status"]["conditions"][-1]
    assert condition["message"] == f"Pod default/{name} has condition DisruptionTarget matching FailJob rule at index 0"
    assert cluster.pods("j") == []


def test_a_taint_evicts_what_does_not_tolerate_it(cluster: Cluster, core: client.CoreV1Api) -> None:
    cluster.kubelet.on_start(None, behaviours.ignore_sigterm())
    core.create_namespaced_pod("default", make_pod("p"))
    core.create_namespaced_pod("default", make_pod("q", tolerations=[{"operator": "Exists"}]))
    cluster.settle()
    cluster.nodes.taint("node-0", "example.org/drain", "NoExecute")
    cluster.settle()
    assert ["deletionTimestamp" in pod["metadata"] for pod in cluster.pods()] == [True, False]
