"""Services that are killed or replaced at any line, and API servers that answer late, wrongly, twice or not at all."""

import base64
import json
from datetime import timedelta
from typing import Any

import pytest

from service.access.secret import hash_secret
from service.control.starter import Starter
from service.launchers.kubernetes.api import KubernetesApi
from service.store.attempt_repository import AttemptRepository
from service.store.models import Job
from service.store.removal import RemovalRepository
from service.times import now
from tests.kubernetes.fake.faults import (
    Answer,
    Delay,
    DropRequest,
    DropWatch,
    DuplicateEvents,
    ExpireWatch,
    LoseAnswer,
    SilenceWatch,
    SlowWatch,
    TruncateAnswer,
    TruncateWatch,
)
from tests.kubernetes.fake.resources import SECRETS
from tests.kubernetes.played.behaviours import run
from tests.patience import wait_until
from tests.service.control.rounds import USER
from tests.service.launchers.kubernetes.scene import DONE, Scene, leave, make_message, stop_service


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database_kind(request: pytest.FixtureRequest) -> str:
    """Kind of database that the tests run on, one after the other."""
    return request.param


def name_fault(fault: Any) -> str:
    return f"{type(fault).__name__}{getattr(fault, 'code', '')}"


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


def kill_at(patch: pytest.MonkeyPatch, method: str, after: int = 0, before: bool = True) -> None:
    """Have the service die at its request number `after` of that method, before or after it is carried out."""
    request, count = KubernetesApi.request, [0]

    def die(api: KubernetesApi, name: str, *arguments: Any, **options: Any) -> Any:
        is_due = name == method and count[0] == after
        count[0] += name == method
        if is_due and before:
            raise Killed
        answer = request(api, name, *arguments, **options)
        if is_due:
            raise Killed
        return answer

    patch.setattr(KubernetesApi, "request", die)


def turn_until_killed(scene: Scene) -> None:
    def is_killed() -> bool:
        try:
            scene.turn()
        except Killed:
            return True
        return False

    wait_until(is_killed)


@pytest.mark.parametrize(
    ("method", "after", "before"),
    [
        ("POST", 0, False),
        ("POST", 1, True),
        ("PATCH", 0, True),
        pytest.param("POST", 0, True, marks=pytest.mark.slow),
        pytest.param("POST", 1, False, marks=pytest.mark.slow),
        pytest.param("PATCH", 0, False, marks=pytest.mark.slow),
    ],
)
def test_a_service_that_is_killed_while_it_starts_an_attempt_starts_it_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, method: str, after: int, before: bool
) -> None:
    scene.cluster.kubelet.on_start(behaviour=run())
    job_id = scene.submit()
    scene.cluster.settle()
    kill_at(monkeypatch, method, after, before)
    turn_until_killed(scene)
    second = scene.replace_service()
    job = second.wait_for(job_id, "RUNNING")
    assert (job.num_attempts, len(second.cluster.pods())) == (1, 1)
    second.cluster.kubelet.end(second.pod(job_id), 0, make_message(DONE))
    second.wait_for(job_id, "SUCCEEDED")
    second.wait_until_empty()
    stop_service(second)


def test_whether_an_attempt_was_started_is_asked_until_the_cluster_answers(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=run())
    scene.cluster.faults.inject(SilenceWatch(), verb="watch", resource="jobs", times=None)
    scene.cluster.faults.inject(Answer(500), verb="list", resource="jobs", skip=1, times=2)
    scene.cluster.faults.inject(LoseAnswer(), verb="create", resource="jobs")
    job_id = scene.submit()
    job = scene.wait(job_id, lambda job: job.reason == "unseen")
    assert "whether the cluster has started it is unclear" in job.message
    assert scene.wait_for(job_id, "RUNNING").num_attempts == 1
    assert len(scene.cluster.recorder.requests("create", "jobs")) == 1
    # Another start would have drawn another token than the pods have.
    secret = scene.cluster.get(SECRETS, scene.name_of(job_id))
    target = json.loads(base64.b64decode(secret["data"]["push.json"]))
    with scene.services.database.read() as session:
        attempt = AttemptRepository(session).get_by_number(job_id, 1)
    assert attempt is not None
    assert attempt.token_hash == hash_secret(target["token"])


def test_a_start_does_not_wait_for_a_slow_server_longer_than_the_leases_allow(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.launchers.kubernetes.launcher.CALL_SECONDS", 0.3)
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    for resource in ("secrets", "jobs"):
        scene.cluster.faults.inject(Delay(0.2), verb="create", resource=resource, times=1)
    job_id = scene.submit()
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 1
    scene.wait_until_empty()


def test_a_row_without_objects_is_started_by_the_next_service(scene: Scene) -> None:
    job_id = scene.submit()
    scene.services.leadership.acquire()
    with scene.services.database.read() as session:
        job = session.get_one(Job, job_id)
    Starter(scene.services.leadership, scene.services.launchers, scene.services.telemetry).begin(job)
    second = scene.replace_service()
    assert second.wait_for(job_id, "RUNNING").num_attempts == 1
    stop_service(second)


def test_objects_without_a_row_are_removed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.control.reconciler.ORPHAN_SECONDS", 0.0)
    job_id = scene.submit()
    scene.wait_for(job_id, "RUNNING")
    with scene.services.database.write() as session:
        RemovalRepository(session).remove_some([job_id], 1000)
    scene.wait_until_empty()


def test_an_end_that_comes_while_no_service_runs_is_found_by_the_next_one(scene: Scene) -> None:
    job_id = scene.submit()
    scene.wait_for(job_id, "RUNNING")
    stop_service(scene)
    scene.cluster.kubelet.end(scene.pod(job_id), 0, make_message(DONE))
    scene.cluster.settle()
    second = scene.replace_service(is_stopped=True)
    job = second.wait_for(job_id, "SUCCEEDED")
    assert (job.metrics["auc"], job.num_attempts) == (0.75, 1)
    second.wait_until_empty()
    stop_service(second)


def test_the_files_of_an_attempt_that_ends_without_a_service_are_known_from_its_message(scene: Scene) -> None:
    job_id = scene.submit()
    scene.wait_for(job_id, "RUNNING")
    stop_service(scene)
    path = "/runs/run/checkpoints/step-00000008"
    numbers = {"step": 8, "num_samples": 512, "num_steps": 8, "num_bytes": 77, "world_size": 1, "time": 1.8e9}
    left = {"model_path": "/runs/run/model", "checkpoint": {**numbers, "path": path}}
    message = json.dumps(json.loads(make_message(DONE)) | left)
    scene.cluster.kubelet.end(scene.pod(job_id), 0, message)
    scene.cluster.settle()
    second = scene.replace_service(is_stopped=True)
    job = second.wait_for(job_id, "SUCCEEDED")
    assert (job.model_path, job.metrics["auc"]) == ("/runs/run/model", 0.75)
    (checkpoint,) = second.services.jobs.list_checkpoints(job_id, USER)
    assert (checkpoint.step, checkpoint.num_bytes, checkpoint.path) == (8, 77, path)
    (attempt,) = second.services.jobs.list_attempts(job_id, USER)
    assert attempt.saved_step == 8
    stop_service(second)


def test_a_new_leader_records_the_end_that_the_last_one_has_seen(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one dies after it has asked for the deletion of the Job, with which the end of its pod goes."""
    job_id = scene.submit()
    scene.wait_for(job_id, "RUNNING")
    scene.cluster.kubelet.end(scene.pod(job_id), 64, "line 3: 39 columns")
    kill_at(monkeypatch, "DELETE", before=False)
    turn_until_killed(scene)
    second = scene.replace_service()
    job = second.wait_for(job_id, "FAILED")
    assert (job.reason, "39 columns" in job.message) == ("bad_input", True)
    second.wait_until_empty()
    stop_service(second)


REFUSALS = [("create", fault) for fault in (Answer(429, retry_after_seconds=1), DropRequest(), Answer(500))] + [
    (verb, LoseAnswer()) for verb in ("create", "patch", "delete", "list")
]
"""What becomes of a request does not depend on its verb; what its failure leaves does."""
MORE_REFUSALS = [("create", fault) for fault in (Answer(503, is_plain_text=True), TruncateAnswer(), Delay(0.5))] + [
    (verb, Answer(500)) for verb in ("patch", "delete", "list")
]


@pytest.mark.parametrize(
    ("verb", "fault"),
    [*REFUSALS, *(pytest.param(*refusal, marks=pytest.mark.slow) for refusal in MORE_REFUSALS)],
    ids=lambda one: one if isinstance(one, str) else name_fault(one),
)
def test_a_request_that_fails_once_changes_nothing_of_the_end(scene: Scene, verb: str, fault: Any) -> None:
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    scene.cluster.faults.inject(fault, verb=verb, times=2)
    job = scene.wait_for(scene.submit(), "SUCCEEDED")
    assert job.num_attempts == 1
    scene.wait_until_empty()


LACKS_LIST = (
    'jobs.batch is forbidden: User "system:serviceaccount:dlrm:dlrm" cannot list resource "jobs" in API group "batch" '
    'in the namespace "dlrm"'
)
WATCH_FAULTS = [
    DropWatch(1),
    ExpireWatch(1),
    Answer(410),
    *(
        pytest.param(fault, marks=pytest.mark.slow)
        for fault in (DuplicateEvents(), TruncateWatch(1), SlowWatch(pause_seconds=0.001), Answer(500))
    ),
]


@pytest.mark.parametrize("fault", WATCH_FAULTS, ids=name_fault)
def test_a_watch_that_fails_is_begun_again(scene: Scene, monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    monkeypatch.setattr("service.launchers.kubernetes.watch_cache.WATCH_SECONDS", 2)
    monkeypatch.setattr("service.launchers.kubernetes.watch_cache.SILENCE_SECONDS", 3.0)
    scene.cluster.faults.inject(fault, verb="watch", times=4)
    job_id = scene.submit()
    scene.wait_for(job_id, "RUNNING")
    scene.cluster.kubelet.end(scene.pod(job_id), 0, make_message(DONE))
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 1
    scene.wait_until_empty()


def test_a_watch_that_falls_silent_is_begun_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.launchers.kubernetes.watch_cache.SILENCE_SECONDS", 0.3)
    scene.cluster.faults.inject(SilenceWatch(), verb="watch", times=5)
    job_id = scene.submit()
    assert scene.wait_for(job_id, "RUNNING").num_attempts == 1


def test_rights_that_are_missing_are_told_in_the_cluster_s_words(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    scene.cluster.faults.inject(Answer(403, "Forbidden", LACKS_LIST), verb="list", resource="jobs", times=None)
    job_id = scene.submit(max_restarts=0)
    job = scene.wait(job_id, lambda job: job.reason == "unseen")
    assert "jobs.batch is forbidden: User " in job.message
    assert "grant the verb list on batch/jobs to the service in its Role" in job.message
    # Nothing was tried meanwhile, so nothing was lost.
    scene.cluster.faults.clear()
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 1


def test_leases_are_not_needed_to_find_an_attempt_again(scene: Scene) -> None:
    job_id = scene.submit()
    scene.wait_for(job_id, "RUNNING")
    second = scene.replace_service()
    assert second.wait_for(job_id, "RUNNING").num_attempts == 1
    assert now() - second.see(job_id).created_at < timedelta(minutes=10)
    stop_service(second)
