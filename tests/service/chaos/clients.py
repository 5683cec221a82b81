"""Clients that submit jobs and act on them, and do not mind that services come and go."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from service.client import Client, JobDetails, ServiceError, ServiceUnreachableError
from tests.service.chaos.scripts import Script

Result = TypeVar("Result")
PAUSE_SECONDS = 0.2
CONFLICT = 409
INTERNAL_ERROR = 500


class GivenUpError(Exception):
    """Error raised where no service has answered for too long, or where the clients were told to stop."""


@dataclass
class PatientClient:
    """Client of several services with one database: whichever answers will do."""

    urls: Sequence[str]
    api_key: str
    chance: random.Random
    is_over: threading.Event
    """Set when the clients shall give up."""
    failures: list[str] = field(default_factory=list[str])
    """Answers with status 500, which no outage justifies."""

    def __post_init__(self) -> None:
        self._clients = [Client(url, self.api_key, timeout_seconds=10.0) for url in self.urls]

    def call(self, request: Callable[[Client], Result]) -> Result:
        """Send a request until a service answers it. Raises ServiceError where one refuses it, and GivenUpError."""
        while not self.is_over.is_set():
            try:
                return request(self.chance.choice(self._clients))
            except ServiceUnreachableError:
                pass
            except ServiceError as error:
                if error.problem.status < INTERNAL_ERROR:
                    raise
                if error.problem.status == INTERNAL_ERROR:
                    self.failures.append(str(error))
            time.sleep(PAUSE_SECONDS)
        raise GivenUpError

    def close(self) -> None:
        for client in self._clients:
            client.close()


@dataclass
class Follower:
    """One job, from its submission to its end."""

    client: PatientClient
    script: Script
    seed: int
    job_id: str | None = None
    job: JobDetails | None = None

    @property
    def has_ended(self) -> bool:
        return self.job is not None and self.job.has_ended

    def submit(self) -> None:
        document, key = self.script.make_document(), f"chaos-{self.seed}-{self.script.number}"
        self.job_id = self.client.call(lambda client: client.submit(document, idempotency_key=key)).id
        if self.script.action == "cancel at once":
            self._act(Client.cancel)

    def look(self) -> None:
        """Look at the job, and do to it what the script says."""
        assert self.job_id is not None
        job_id = self.job_id
        self.job = self.client.call(lambda client: client.job(job_id))
        if self.job.has_ended:
            return
        if self.script.action.startswith("cancel") and self.job.state == "RUNNING":
            self._act(Client.cancel)
        if self.script.action == "pause":
            if self.job.state == "PAUSED":
                self._act(Client.resume)
            elif self.job.state == "RUNNING" and not self.client.call(lambda client: list(client.checkpoints(job_id))):
                self._act(Client.pause)

    def _act(self, action: Callable[[Client, str], object]) -> None:
        """Act on the job. That it has changed meanwhile, or by an earlier request without an answer, is no error."""
        assert self.job_id is not None
        job_id = self.job_id
        try:
            self.client.call(lambda client: action(client, job_id))
        except ServiceError as error:
            if error.problem.status != CONFLICT:
                raise


def run_client(followers: Sequence[Follower], is_due: Callable[[Script], bool]) -> None:
    """Submit each job when it is due, and follow all of them until they have ended."""
    waiting = list(followers)
    while waiting or not all(follower.has_ended for follower in followers):
        for follower in [follower for follower in waiting if is_due(follower.script)]:
            follower.submit()
            waiting.remove(follower)
        for follower in followers:
            if follower.job_id is not None and not follower.has_ended:
                follower.look()
        time.sleep(PAUSE_SECONDS)
