"""Containers of pods: what the launcher puts into a pod is all that its program has."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlrm.record import RunDirectory
from service.launchers.kubernetes.manifests import make_job, make_secret, make_service
from service.launchers.kubernetes.options import RUNS_PATH, KubernetesOptions
from service.launchers.kubernetes.pod import PodSettings
from service.launchers.protocol import Capacity, Demand, Launch, LaunchFiles, LaunchName
from tests.e2e.pod_scene import run_pods
from tests.kubernetes.containers.kubelet import PodRuntime
from tests.kubernetes.fake.resources import Json
from tests.patience import wait_until

MEMORY_BYTES = 2**28
NAME = "dlrm-7-1"
OPTIONS = KubernetesOptions(
    image="registry.example/dlrm:1",
    ingest_url="http://dlrm.dlrm.svc:8080",
    runs_claim="runs",
    data_claims={"clicks": "/data/clicks"},
    environment_secrets=["buckets"],
    environment={"OWN": "value"},
)
PROBE = """
import json, os, socket, tempfile
from pathlib import Path
from hostinfo.limits import count_cores, get_memory_bytes

def can_write(path):
    try:
        with tempfile.NamedTemporaryFile(dir=path):
            return True
    except OSError:
        return False

status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
directories = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
directories += ["/", "/etc", "/opt", "/opt/code", "/var", "/dev", "/root", "/home", "/data", "/sys/fs/cgroup"]
found = {
    "user": os.getuid(), "group": os.getgid(), "groups": os.getgroups(), "host": socket.gethostname(),
    "capabilities": [status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "no_new_privileges": status["NoNewPrivs"].strip(),
    "processes": sorted(int(path.name) for path in Path("/proc").glob("[0-9]*")),
    "directory": os.getcwd(), "environment": dict(os.environ),
    "memory_bytes": get_memory_bytes(), "cores": count_cores(),
    "writable": sorted({path for path in directories if os.path.isdir(path) and can_write(path)}),
    "files": {path.name: [path.read_text(), oct(path.stat().st_mode & 0o777)]
              for path in Path("/etc/dlrm/attempt").glob("*.json")},
    "data": Path("/data/clicks/day_0.tsv").read_text(),
    "shm_bytes": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize,
    "addresses": {name: socket.gethostbyname(name) for name in
                  ("NAME-0.NAME", "NAME-0.NAME.default.svc.cluster.local", "dlrm.dlrm.svc", "localhost")},
    "interfaces": sorted(name for _, name in socket.if_nameindex()),
}
Path("/runs/probe-" + os.environ["JOB_COMPLETION_INDEX"]).write_text(json.dumps(found))
Path("/dev/termination-log").write_text("the end")
""".replace("NAME", NAME)


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[PodRuntime]:
    with run_pods(tmp_path) as made:
        (made.node.claims["clicks"] / "day_0.tsv").write_text("rows")
        yield made


def launch(runtime: PodRuntime, program: str, *, num_nodes: int = 2, **changes: Any) -> None:
    """Have the launcher's objects in the cluster, with `program` in place of the trainer's. changes: of the pods."""
    demand = Demand(Capacity(1, MEMORY_BYTES, 0), num_nodes=num_nodes, min_nodes=num_nodes)
    made = Launch(LaunchName("job_7", 1), RunDirectory(RUNS_PATH / "job_7"), demand, "kubernetes")
    job = make_job(made, PodSettings(OPTIONS, grace_seconds=1), "svc_1")
    spec: Json = job["spec"]["template"]["spec"]
    spec |= changes
    spec["containers"][0]["args"] = ["python", "-c", textwrap.dedent(program)]
    for manifest in (make_secret(made, LaunchFiles("{}", "[]"), "svc_1"), make_service(made, "svc_1"), job):
        runtime.cluster.apply(manifest)


def wait_for_end(runtime: PodRuntime, index: int = 0) -> Json:
    """Wait until a pod has ended, and return the state of its container."""
    runtime.cluster.run_in_background()

    def find_state() -> Json | None:
        assert not runtime.cluster.server.crashes, runtime.cluster.server.crashes
        for pod in runtime.cluster.pods(NAME):
            statuses = pod["status"].get("containerStatuses") or [{"state": {}}]
            if pod["spec"]["hostname"] == f"{NAME}-{index}" and "terminated" in statuses[0]["state"]:
                return statuses[0]["state"]["terminated"]
        return None

    return wait_until(find_state)


def test_a_container_has_what_its_pod_says_and_nothing_else(runtime: PodRuntime) -> None:
    # Pod 0 has an address before pod 1 looks for it.
    launch(runtime, f"import time, os; time.sleep(int(os.environ['JOB_COMPLETION_INDEX']) / 2)\n{PROBE}")
    end = wait_for_end(runtime, 1)
    assert (end["exitCode"], end["message"]) == (0, "the end"), end
    runs = runtime.node.claims["runs"]
    found = json.loads((runs / "probe-1").read_text())
    assert (found["user"], found["group"], set(found["groups"])) == (10_001, 10_001, {10_001})
    assert (set(found["capabilities"]), found["no_new_privileges"]) == ({"0" * 16}, "1")
    assert (found["host"], found["directory"]) == (f"{NAME}-1", "/tmp")
    # Process 1 passes signals on.
    assert found["processes"][0] == 1
    assert len(found["processes"]) == 2
    assert found["writable"] == ["/dev/shm", "/prepared", "/runs", "/tmp"]
    assert found["files"] == {"spec.json": ["{}", "0o440"], "push.json": ["[]", "0o440"]}
    assert (found["data"], found["memory_bytes"], found["shm_bytes"]) == ("rows", MEMORY_BYTES, MEMORY_BYTES)
    assert found["cores"] == 1
    environment = found["environment"]
    wanted = {"JOB_COMPLETION_INDEX": "1", "OWN": "value", "REGION": "a", "DLRM_PREPARED_DIRECTORY": "/prepared"}
    assert wanted.items() <= environment.items()
    assert not {"SSH_AUTH_SOCK", "KUBECONFIG", "PYTEST_CURRENT_TEST"} & environment.keys()
    address = found["addresses"][f"{NAME}-0.{NAME}"]
    assert address.startswith(f"{runtime.network.prefix}.")
    assert found["addresses"][f"{NAME}-0.{NAME}.default.svc.cluster.local"] == address
    assert found["addresses"]["dlrm.dlrm.svc"] == runtime.network.host_address
    assert found["interfaces"] == ["eth0", "lo"]
    written = (runs / "probe-1").stat()
    assert (written.st_uid, written.st_gid) == (10_001, 10_001)
