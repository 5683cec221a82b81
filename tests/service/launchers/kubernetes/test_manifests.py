"""Objects of attempts: valid for Kubernetes, within Pod Security `restricted`, as large as the job asks for."""

import itertools
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from dlrm.config import KubernetesConfig
from dlrm.config.resources import TolerationConfig
from dlrm.record import RunDirectory
from service.launchers.kubernetes.manifests import make_job, make_secret, make_service
from service.launchers.kubernetes.options import KubernetesOptions
from service.launchers.kubernetes.pod import PodSettings
from service.launchers.protocol import Capacity, Demand, Launch, LaunchError, LaunchFiles, LaunchName
from service.times import now
from tests.deploy.pod_security import list_violations

Object = dict[str, Any]

VERSIONS = ("1.31", kubernetes_validate.latest_version())
SERVICE = "svc_01M84VKR2QZW19CT9FR2HB83BM"
OPTIONS: list[Object] = [
    {"runs_claim": "runs"},
    {"run_store": "s3://bucket/runs"},
    {
        "runs_claim": "runs",
        "data_claims": {"clicks": "/data/clicks", "views": "/data/views"},
        "prepared_claim": "prepared",
        "image_pull_policy": "Always",
        "image_pull_secrets": ["registry"],
        "environment": {"OMP_NUM_THREADS": "1"},
        "environment_secrets": ["buckets"],
        "queue_name": "ads",
        "priority_class": "training",
        "node_selector": {"pool": "training"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    },
]
DEMANDS = [
    Demand(Capacity(1, 2**28, 0)),
    Demand(Capacity(8, 2**35, 2)),
    Demand(Capacity(4, 2**33, 0), num_nodes=2, min_nodes=2),
    Demand(Capacity(64, 2**39, 8), num_nodes=16, min_nodes=4),
]
TOLERATION = TolerationConfig(key="gpu", operator="Exists", effect="NoSchedule")
PLACEMENTS = [
    KubernetesConfig(),
    KubernetesConfig(
        queue_name="own", priority_class="high", node_selector={"zone": "a"}, tolerations=[TOLERATION], image="x/y:2"
    ),
]
DEADLINES = (None, 3600)
CASES = list(itertools.product(OPTIONS, DEMANDS, PLACEMENTS, DEADLINES))


def make_settings(options: Object) -> PodSettings:
    known = {"image": "registry.example/dlrm:1", "allowed_images": ["x/*"], "ingest_url": "http://dlrm:8080"}
    return PodSettings(KubernetesOptions.model_validate(known | options), grace_seconds=150)


def make_launch(demand: Demand, placement: KubernetesConfig, deadline_seconds: int | None) -> Launch:
    name = LaunchName("job_01M84VKR2QZW19CT9FR2HB83BM", 12)
    directory = RunDirectory(Path("/runs") / name.job_id)
    deadline = None if deadline_seconds is None else now() + timedelta(seconds=deadline_seconds)
    return Launch(name, directory, demand, "kubernetes", options=placement, deadline_at=deadline)


def make_objects(options: Object, launch: Launch) -> list[Object]:
    settings = make_settings(options)
    files = LaunchFiles("{}", "{}")
    return [
        make_job(launch, settings, SERVICE),
        make_secret(launch, files, SERVICE),
        *([make_service(launch, SERVICE)] if launch.demand.num_nodes > 1 else []),
    ]


def list_pods() -> list[tuple[Launch, Object]]:
    launches = [(options, make_launch(*rest)) for options, *rest in CASES]
    return [(launch, make_objects(options, launch)[0]["spec"]["template"]["spec"]) for options, launch in launches]


@pytest.mark.parametrize("version", VERSIONS)
def test_all_objects_are_valid_over_many_job_documents(version: str) -> None:
    # Every value of each occurs.
    for options, *rest in CASES[::5]:
        for made in make_objects(options, make_launch(*rest)):
            kubernetes_validate.validate(made, version, strict=True)


def test_every_pod_is_within_restricted_and_has_no_token() -> None:
    for _, pod in list_pods():
        assert list_violations(pod) == []
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["fsGroup"]) == (10_001, 10_001)


def test_a_pod_gets_what_the_job_asks_for_shared_memory_included() -> None:
    for launch, pod in list_pods():
        (container,) = pod["containers"]
        wanted = launch.demand.node
        for amounts in container["resources"].values():
            assert (amounts["cpu"], amounts["memory"]) == (str(wanted.num_cores), str(wanted.memory_bytes))
            assert amounts.get("nvidia.com/gpu", "0") == str(wanted.num_gpus)
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": str(wanted.memory_bytes)}
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert {"/dev/shm": "shm", "/tmp": "tmp", "/runs": "runs"}.items() <= mounts.items()
        assert all("emptyDir" not in volume or volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"])


def test_pods_have_longer_to_stop_than_a_checkpoint_takes() -> None:
    assert {pod["terminationGracePeriodSeconds"] for _, pod in list_pods()} == {150}


def test_one_node_meets_nobody_and_several_meet_at_pod_0() -> None:
    for launch, pod in list_pods():
        arguments = pod["containers"][0]["args"]
        assert arguments[:4] == ["python", "-m", "dlrm.launch", "/runs/job_01M84VKR2QZW19CT9FR2HB83BM"]
        assert ("--rendezvous" in arguments) == (launch.demand.num_nodes > 1)
        assert pod["subdomain"] == "dlrm-01m84vkr2qzw19ct9fr2hb83bm-12"
        keys = [spread["topologyKey"] for spread in pod.get("topologySpreadConstraints", [])]
        assert keys == (["kubernetes.io/hostname"] if launch.demand.num_nodes > 1 else [])


def test_a_job_of_one_node_fails_with_its_pod_others_pod_by_pod() -> None:
    for options, *rest in CASES:
        launch = make_launch(*rest)
        spec = make_objects(options, launch)[0]["spec"]
        rules = spec["podFailurePolicy"]["rules"]
        assert rules[0]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
        assert [rule["onExitCodes"]["values"] for rule in rules[1:]] == [[64], [75]]
        action, limit = (
            ("FailJob", "backoffLimit") if launch.demand.num_nodes == 1 else ("FailIndex", "backoffLimitPerIndex")
        )
        assert {rule["action"] for rule in rules} == {action}
        assert spec[limit] == 0
        assert (spec["podReplacementPolicy"], spec["ttlSecondsAfterFinished"]) == ("Failed", 86_400)
        assert (spec["completions"], spec["parallelism"]) == (launch.demand.num_nodes, launch.demand.num_nodes)


def test_a_job_of_a_queue_is_suspended_until_that_admits_it_perhaps_with_fewer_nodes() -> None:
    for options, *rest in CASES:
        launch = make_launch(*rest)
        job = make_objects(options, launch)[0]
        queue_name = launch.options.queue_name or options.get("queue_name")
        assert job["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") == queue_name
        assert job["spec"]["suspend"] == (queue_name is not None)
        annotations = job["metadata"].get("annotations", {})
        is_partial = queue_name is not None and launch.demand.min_nodes < launch.demand.num_nodes
        least = str(launch.demand.min_nodes) if is_partial else None
        assert annotations.get("kueue.x-k8s.io/job-min-parallelism") == least


def test_a_job_of_a_queue_has_the_priority_class_of_its_priority() -> None:
    classes = {"queue_priority_classes": {"0": "low", "10": "high"}}
    launches = [replace(make_launch(DEMANDS[0], PLACEMENTS[0], None), priority=priority) for priority in (-5, 3, 10)]
    for options, expected in ((OPTIONS[2], [None, "low", "high"]), (OPTIONS[0], [None, None, None])):
        labels = [make_objects(options | classes, launch)[0]["metadata"]["labels"] for launch in launches]
        assert [one.get("kueue.x-k8s.io/priority-class") for one in labels] == expected


def test_the_labels_of_nodes_in_the_settings_count_before_those_of_a_job() -> None:
    placement = KubernetesConfig(node_selector={"pool": "prod", "zone": "a"})
    made = make_objects(OPTIONS[2], make_launch(DEMANDS[0], placement, None))[0]
    assert made["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "training", "zone": "a"}


def test_kubernetes_ends_a_job_that_its_service_has_not_ended() -> None:
    (without, with_deadline) = (
        make_objects(OPTIONS[0], make_launch(DEMANDS[0], PLACEMENTS[0], seconds))[0]["spec"] for seconds in DEADLINES
    )
    assert "activeDeadlineSeconds" not in without
    # The deadline, the grace period, and ten minutes for the service.
    assert 3600 + 150 + 600 - 5 <= with_deadline["activeDeadlineSeconds"] <= 3600 + 150 + 600


def test_files_that_no_secret_holds_are_refused() -> None:
    launch = make_launch(DEMANDS[0], PLACEMENTS[0], None)
    make_secret(launch, LaunchFiles("x" * 2**19, "{}"), SERVICE)
    with pytest.raises(LaunchError, match="name directories or patterns instead of many files"):
        make_secret(launch, LaunchFiles("x" * 2**20, "{}"), SERVICE)
