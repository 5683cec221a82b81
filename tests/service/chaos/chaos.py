"""Sixty jobs of eight clients, while services and workers are killed; what must hold at the end, and a table of it."""

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from sqlalchemy import text

from service.client import Client, Job
from service.database import Database
from tests.patience import PATIENCE_SECONDS
from tests.service.chaos.clients import Follower, GivenUpError, PatientClient, run_client
from tests.service.chaos.journal import count_starts, read_overlaps
from tests.service.chaos.scripts import NUM_JOBS, Script, make_scripts
from tests.service.service_process import ServiceProcess, find_launch_processes, find_workers

NUM_CLIENTS = 8
NUM_SERVICE_KILLS = 40
NUM_WORKER_KILLS = 10
START_KILLED_FRACTION = 0.25
"""Fraction of the kills that hit a service while it starts."""
LONGEST_START_SECONDS = 2.0
LONGEST_LIFE_SECONDS = 4.0
"""Longest time from when a service accepts requests until it is killed."""
SUBMITTED_AT = 0.9
"""Fraction of the kills after which the last job is submitted."""


@dataclass
class Chaos:
    """Services, clients and those who kill them; `run` is all of it."""

    services: Sequence[ServiceProcess]
    database_url: str
    runs: Path
    """Directory with the run directories of all jobs."""
    seed: int
    num_service_kills: int = 0
    num_leader_kills: int = 0
    num_worker_kills: int = 0
    followers: list[Follower] = field(default_factory=list[Follower])
    faults: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """What must not be, by its kind."""

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._database = Database(self.database_url)
        self._is_over = threading.Event()

    def run(self) -> None:
        """Start the services, submit the jobs, kill, wait for the end of all jobs, and look for faults."""
        for service in self.services:
            service.start()
        for service in self.services:
            service.wait_until_ready()
        api_key = next(key for service in self.services if (key := service.admin_key))
        urls = [service.url for service in self.services]
        clients = [
            PatientClient(urls, api_key, random.Random(f"{self.seed}-{number}"), self._is_over)
            for number in range(NUM_CLIENTS)
        ]
        scripts = make_scripts(self._chance)
        self.followers = [Follower(clients[script.number % NUM_CLIENTS], script, self.seed) for script in scripts]
        with ThreadPoolExecutor(NUM_CLIENTS) as pool:
            ends = [
                pool.submit(run_client, self.followers[number::NUM_CLIENTS], self._is_due)
                for number in range(NUM_CLIENTS)
            ]
            try:
                self._kill_services()
                self._await(ends)
            finally:
                self._is_over.set()
        self._is_over.clear()
        self._look_for_faults(clients)
        for client in clients:
            client.close()
        self._database.close()

    def _is_due(self, script: Script) -> bool:
        return self.num_service_kills >= script.number / NUM_JOBS * SUBMITTED_AT * NUM_SERVICE_KILLS

    def _await(self, ends: Sequence["Future[None]"]) -> None:
        """Wait until all jobs have ended, for as long as one of them does something now and then."""
        seen, give_up_at = "", time.monotonic() + PATIENCE_SECONDS
        while not all(end.done() for end in ends) and time.monotonic() < give_up_at:
            time.sleep(0.5)
            now_seen = repr(
                [(follower.job and (follower.job.state, follower.job.num_attempts)) for follower in self.followers]
            )
            if now_seen != seen:
                seen, give_up_at = now_seen, time.monotonic() + PATIENCE_SECONDS
        self._is_over.set()
        for end in ends:
            with suppress(GivenUpError):
                end.result()

    def _kill_services(self) -> None:
        while self.num_service_kills < NUM_SERVICE_KILLS:
            victim = self._choose_victim()
            if self._chance.random() >= START_KILLED_FRACTION:
                victim.wait_until_ready()
                time.sleep(self._chance.uniform(0, LONGEST_LIFE_SECONDS))
            else:
                time.sleep(self._chance.uniform(0, LONGEST_START_SECONDS))
            is_due = self.num_worker_kills < NUM_WORKER_KILLS * (self.num_service_kills + 1) / NUM_SERVICE_KILLS
            if is_due and self._chance.random() < 0.5:
                self._kill_worker()
            self.num_leader_kills += victim.pid in self._find_leader()
            victim.kill()
            self.num_service_kills += 1
            victim.start()
        for service in self.services:
            service.wait_until_ready()
        while self.num_worker_kills < NUM_WORKER_KILLS and not all(follower.has_ended for follower in self.followers):
            time.sleep(self._chance.uniform(0, 1))
            self._kill_worker()

    def _choose_victim(self) -> ServiceProcess:
        """Choose the leader every other time, where it is known, and else anyone."""
        leaders = [service for service in self.services if service.pid in self._find_leader()]
        return leaders[0] if leaders and self._chance.random() < 0.5 else self._chance.choice(self.services)

    def _find_leader(self) -> set[int]:
        """Return the numbers in the name of the leader, among which is its process; empty where there is none."""
        with self._database.read() as session:
            names = session.execute(text("SELECT owner FROM leadership")).scalars().all()
        return {int(number) for name in names for number in re.findall(r"\d+", name)}

    def _kill_worker(self) -> None:
        workers = find_launch_processes(self.runs)
        if workers:
            with suppress(psutil.NoSuchProcess):
                self._chance.choice(workers).kill()
                self.num_worker_kills += 1

    def _look_for_faults(self, clients: Sequence[PatientClient]) -> None:
        client = clients[0]
        jobs = client.call(lambda client: list(client.jobs()))
        self._check_jobs(jobs)
        for job in jobs:
            self._check_metrics(client, job)
        attempts = [
            attempt for job in jobs for attempt in client.call(lambda client, job=job: list(client.attempts(job.id)))
        ]
        free = client.call(Client.capacity)
        self.faults |= {
            "run twice at once": [f"{job.id}: {line}" for job in jobs for line in read_overlaps(self.runs / job.id)],
            "attempts without an end": [attempt.id for attempt in attempts if attempt.finished_at is None],
            "resources not given back": [] if free.num_cores_free == free.num_cores else [repr(free)],
            "processes left": [repr(process) for process in find_workers(self.runs)],
            "answers with status 500": [failure for each in clients for failure in each.failures],
        }

    def _check_jobs(self, jobs: Sequence[Job]) -> None:
        found = Counter(job.labels["number"] for job in jobs)
        by_number = {job.labels["number"]: job for job in jobs}
        scripts = {str(follower.script.number): follower.script for follower in self.followers}
        pairs = [(by_number[number], script) for number, script in scripts.items() if number in by_number]
        self.faults |= {
            "lost": [script.behaviour for number, script in scripts.items() if number not in found],
            "submitted twice": [number for number, times in found.items() if times > 1],
            "stuck": [_describe(job, script) for job, script in pairs if not job.has_ended],
            "in another state": [
                _describe(job, script)
                for job, script in pairs
                if job.has_ended and (job.state, job.reason) != (script.state, script.reason)
            ],
        }

    def _check_metrics(self, client: PatientClient, job: Job) -> None:
        """Check that the curve of a job has every step once, and that of a job that has succeeded all of them."""
        wrong = self.faults.setdefault("metrics with a gap or a double", [])
        steps = [metric.step for metric in client.call(lambda client: list(client.metrics(job.id, kind="step")))]
        num_steps = job.progress.num_steps if job.state == "SUCCEEDED" else len(steps)
        if steps != list(range(1, (num_steps or 0) + 1)):
            wrong.append(f"{job.id} ({job.name}, {job.state}): {steps}, of {num_steps}")
        evaluated = [
            metric.step for metric in client.call(lambda client: list(client.metrics(job.id, kind="evaluation")))
        ]
        if len(set(evaluated)) != len(evaluated) or (job.state == "SUCCEEDED" and evaluated[-1:] != [num_steps]):
            wrong.append(f"{job.id} ({job.name}, {job.state}): evaluated at {evaluated}, of {num_steps}")

    def describe(self, kind: str, seconds: float) -> str:
        """Return the table of what has happened and of all faults."""
        jobs = [follower.job for follower in self.followers if follower.job]
        num_real = sum(follower.script.behaviour == "real" for follower in self.followers)
        happened = {
            "jobs": f"{NUM_JOBS}, {num_real} of them real",
            "services killed": f"{self.num_service_kills}, {self.num_leader_kills} of them as the leader",
            "starts of services": sum(service.num_starts for service in self.services),
            "workers killed": self.num_worker_kills,
            "attempts": sum(job.num_attempts for job in jobs),
            "starts of trainers": sum(count_starts(self.runs / job.id) for job in jobs),
            "tracebacks in logs": sum(service.log.count("Traceback (most recent") for service in self.services),
            "clocks": ", ".join(f"{service.clock_offset_seconds:+g} s" for service in self.services),
            "seconds": f"{seconds:.0f}",
        }
        rows = [*happened.items(), *((name, len(found)) for name, found in self.faults.items())]
        lines = [f"chaos on {kind}, {len(self.services)} process(es), seed {self.seed}"]
        lines += [f"  {name:<32}{value}" for name, value in rows]
        lines += [f"  {name}: {fault}" for name, found in self.faults.items() for fault in found]
        return "\n".join(lines) + "\n"


def _describe(job: Job, script: Script) -> str:
    ought = f"{script.state} {script.reason}"
    return f"{job.id} ({script.behaviour}, {script.action}) is {job.state} {job.reason}, not {ought}: {job.message}"
