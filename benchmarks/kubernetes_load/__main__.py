"""Cost and delay of a service with many jobs on a fake cluster of Kubernetes: `python -m benchmarks.kubernetes_load`.

Jobs are submitted at once, run for a while without news, end one after another, and the rest of them all at once. The
cluster (the fake one of the tests) runs in a process of its own. Measured are the requests to its API, the CPU time of
the service (its control loop and its watches; nobody asks it over REST), and the time from the moment at which a pod's
status changes on the server to the new state of its job in the database.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from sqlalchemy import func, select

from benchmarks.kubernetes_load.fake_cluster import Observed, ask, run_cluster
from service.access.principal import Principal, Role
from service.app import Services, create_services
from service.jobs.service import EventQuery, Submission
from service.settings import Settings
from service.store.models import Job
from service.store.states import JobState

USER = Principal("key_0", "bench", "bench", Role.ADMIN)
POLL_SECONDS = 0.25
LIMIT_SECONDS = 300.0
DOCUMENT = {
    "data": {"train": ["s3://logs/clicks/day_*.tsv"]},
    "batch": {"global_size": 64},
    "resources": {"workers_per_node": 1, "memory": "1GiB", "launcher": "kubernetes"},
}
OPTIONS = """\
image = "registry.example/dlrm:1"
ingest_url = "http://dlrm.dlrm.svc:8080"
run_store = "s3://runs/dlrm"
data_stores = ["s3://logs/clicks"]
"""


@dataclass(frozen=True)
class Phase:
    """Measurements of one phase."""

    name: str
    seconds: float
    cpu_seconds: float
    num_calls: int

    def format(self) -> str:
        calls, share = 60 * self.num_calls / self.seconds, self.cpu_seconds / self.seconds
        wall = f"{self.name:34} {self.seconds:9.1f} {self.num_calls:9,} {calls:12,.0f}"
        return f"{wall} {self.cpu_seconds:9.2f} {share:9.1%}"


class Stopwatch:
    """Measures phases: wall time, CPU time of this process, and requests to the cluster."""

    def __init__(self, cluster: Connection) -> None:
        self._cluster = cluster

    def measure(self, name: str, work: Callable[[], None]) -> Phase:
        calls, cpu, start = self.observe().num_calls, time.process_time(), time.monotonic()
        work()
        seconds, cpu = time.monotonic() - start, time.process_time() - cpu
        return Phase(name, seconds, cpu, self.observe().num_calls - calls)

    def observe(self) -> Observed:
        return ask(self._cluster, "observe")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200, help="number of jobs (default: 200)")
    parser.add_argument("--quiet-seconds", type=float, default=60.0, help="time without news (default: 60)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with run_cluster(directory / "kubeconfig") as cluster:
            os.environ["KUBECONFIG"] = str(directory / "kubeconfig")
            services = create_services(make_settings(directory))
            try:
                report(cluster, services, arguments.jobs, arguments.quiet_seconds)
            finally:
                services.control.stop()
                services.launchers.close()
                services.database.close()


def make_settings(directory: Path) -> Settings:
    options = directory / "kubernetes.toml"
    options.write_text(OPTIONS)
    return Settings(
        state_directory=directory / "state",
        database_url=f"sqlite:///{directory / 'service.sqlite3'}",
        launchers=["kubernetes"],
        kubernetes=options,
    )


def report(cluster: Connection, services: Services, num_jobs: int, quiet_seconds: float) -> None:
    """Run all phases and print what they cost."""
    watch = Stopwatch(cluster)
    jobs = [services.jobs.submit(Submission(DOCUMENT, USER))[0].id for _ in range(num_jobs)]
    services.control.start()
    half = num_jobs // 2
    phases = [
        watch.measure(f"{num_jobs} starts at once", lambda: wait_for(services, jobs, JobState.RUNNING)),
        watch.measure("no news", lambda: time.sleep(quiet_seconds)),
        watch.measure(f"{half} ends, one in a second", lambda: end_in_turn(cluster, services, jobs[:half])),
        watch.measure(f"{num_jobs - half} ends at once", lambda: end_at_once(cluster, services, jobs[half:])),
        watch.measure("no job", lambda: time.sleep(quiet_seconds)),
    ]
    observed = watch.observe()
    sys.stdout.write(f"{'':34} {'seconds':>9} {'requests':>9} {'per minute':>12} {'CPU, s':>9} {'of a core':>9}\n")
    sys.stdout.writelines(phase.format() + "\n" for phase in phases)
    running = measure_delays(services, jobs, JobState.RUNNING, observed.running_at)
    ended = measure_delays(services, jobs, JobState.SUCCEEDED, observed.ended_at)
    for name, delays in (
        (f"pod runs -> RUNNING, {num_jobs} at once", running),
        ("pod ends -> SUCCEEDED, one in a second", ended[:half]),
        (f"pod ends -> SUCCEEDED, {num_jobs - half} at once", ended[half:]),
    ):
        deciles = statistics.quantiles(delays, n=20, method="inclusive")
        median, last, largest = statistics.median(delays), deciles[-1], max(delays)
        sys.stdout.write(f"{name:44} median {median:.2f} s, 95 % {last:.2f} s, largest {largest:.2f} s\n")
    calls = sorted(observed.calls.items(), key=lambda item: -item[1])
    sys.stdout.write("requests: " + ", ".join(f"{name} {number:,}" for name, number in calls) + "\n")


def end_in_turn(cluster: Connection, services: Services, jobs: Sequence[str]) -> None:
    for job_id in jobs:
        ask(cluster, "end", [make_pod_name(job_id)])
        time.sleep(1.0)
    wait_for(services, jobs, JobState.SUCCEEDED)


def end_at_once(cluster: Connection, services: Services, jobs: Sequence[str]) -> None:
    ask(cluster, "end", [make_pod_name(job_id) for job_id in jobs])
    wait_for(services, jobs, JobState.SUCCEEDED)


def make_pod_name(job_id: str) -> str:
    return f"dlrm-{job_id.removeprefix('job_').lower()}-1-0"


def wait_for(services: Services, jobs: Sequence[str], state: JobState) -> None:
    """Wait until all jobs are in `state`. Counts them in the database, which costs less than to ask for each."""
    deadline = time.monotonic() + LIMIT_SECONDS
    query = select(func.count()).where(Job.id.in_(jobs), Job.state == state)
    while True:
        with services.database.read() as session:
            found = session.scalar(query)
        if found == len(jobs):
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"{found} of {len(jobs)} jobs are {state} after {LIMIT_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


def measure_delays(services: Services, jobs: Sequence[str], state: JobState, since: dict[str, float]) -> list[float]:
    """Return for each job the seconds from the change of its pod to the event of its new state."""
    pods = {name.rpartition("-")[0]: at for name, at in since.items()}
    delays: list[float] = []
    for job_id in jobs:
        events = services.jobs.list_events(job_id, USER, EventQuery(0, 100)).items
        changed_at = next(event.time for event in events if event.to_state == state)
        delays.append(changed_at.timestamp() - pods[make_pod_name(job_id)])
    return delays


if __name__ == "__main__":
    main()
