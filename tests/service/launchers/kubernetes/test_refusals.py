"""Refusals at the start of an attempt: those that may pass are tried again, the others name what to do."""

import pytest

from service.launchers.kubernetes.api import ApiError
from service.launchers.kubernetes.refusals import explain_refusal
from service.store.removal import RemovalRepository
from tests.kubernetes.fake.deletion import DeleteOptions
from tests.kubernetes.fake.faults import Answer, LoseAnswer
from tests.kubernetes.fake.resources import SECRETS
from tests.service.launchers.kubernetes.scene import DONE, Scene, leave

LACKS = (
    'secrets is forbidden: User "system:serviceaccount:dlrm:dlrm" cannot create resource "secrets" in API group "" in '
    'the namespace "dlrm"'
)
LACKS_JOBS = LACKS.replace('"secrets" in API group ""', '"jobs" in API group "batch"')


@pytest.mark.parametrize(
    ("status", "text", "reason", "words"),
    [
        (403, LACKS, "launch_failed", "grant the verb create on secrets to the service in its Role"),
        (403, LACKS_JOBS, "launch_failed", "grant the verb create on batch/jobs to the service in its Role"),
        (403, 'jobs.batch "a" is forbidden: exceeded quota: none', "quota_exceeded", "exceeded quota: none"),
        (403, 'secrets "a" is forbidden: namespace dlrm is being terminated', "launch_failed", "is being deleted"),
        (404, 'namespaces "dlrm" not found', "launch_failed", "the namespace of the attempts is missing: create it"),
        (422, 'Job.batch "a" is invalid: spec.template: Invalid value', "launch_failed", "see resources.kubernetes"),
        (400, "bad request", "launch_failed", "the cluster refuses the attempt: bad request"),
    ],
)
def test_what_does_not_pass_names_what_to_do(status: int, text: str, reason: str, words: str) -> None:
    refusal = explain_refusal(ApiError(status, "", text))
    assert refusal is not None
    assert refusal.reason == reason
    assert words in str(refusal)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0, "no answer"),
        (401, "Unauthorized"),
        (409, "the object has been modified"),
        (404, 'secrets "dlrm-a-1" not found'),
        (404, 'services "dlrm-a-1" not found'),
        (429, "too many requests"),
        (500, "an error on the server"),
    ],
)
def test_what_may_pass_is_no_failure(status: int, text: str) -> None:
    assert explain_refusal(ApiError(status, "", text)) is None


def test_a_secret_that_is_deleted_between_two_requests_is_made_again(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    # The Secret is there, so its files are patched; by then it is gone.
    scene.cluster.faults.inject(LoseAnswer(), verb="create", resource="secrets")
    answer = Answer(404, "NotFound", 'secrets "gone" not found')
    scene.cluster.faults.inject(answer, verb="patch", resource="secrets")
    job = scene.wait_for(scene.submit(max_restarts=0), "SUCCEEDED")
    assert job.num_attempts == 1


def test_an_owner_that_cannot_be_written_any_more_does_not_end_the_attempt(scene: Scene) -> None:
    answer = Answer(404, "NotFound", 'secrets "gone" not found')
    scene.cluster.faults.inject(answer, verb="patch", resource="secrets")
    job_id = scene.submit(max_restarts=0)
    scene.wait_for(job_id, "RUNNING")
    scene.cluster.api.delete(SECRETS, scene.cluster.namespace, scene.name_of(job_id), DeleteOptions())
    scene.cluster.kubelet.end(scene.pod(job_id), 0, leave(DONE, 0).ending.message)
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 1
    scene.wait_until_empty()


def test_what_the_cluster_says_of_a_start_that_may_pass_is_told_once(scene: Scene) -> None:
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    text = 'Internal error occurred: failed calling webhook "mjob.kb.io"'
    scene.cluster.faults.inject(Answer(500, message=text), verb="create", resource="jobs", times=3)
    job_id = scene.submit(max_restarts=0)
    job = scene.wait(job_id, lambda job: job.reason == "launch_failed")
    assert (job.state, text in job.message) == ("STARTING", True)
    assert scene.wait_for(job_id, "SUCCEEDED").num_attempts == 1
    assert len([message for message in scene.list_events(job_id) if text in message]) == 1
    scene.wait_until_empty()


@pytest.mark.parametrize(("status", "text"), [(401, "Unauthorized"), (403, LACKS_JOBS)])
def test_an_api_server_that_has_just_started_and_knows_nobody_costs_no_attempt(
    scene: Scene, status: int, text: str
) -> None:
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    scene.cluster.faults.inject(Answer(status, message=text), verb="create", resource="jobs", times=2)
    assert scene.wait_for(scene.submit(max_restarts=0), "SUCCEEDED").num_attempts == 1


def test_a_right_that_is_missing_for_long_fails_the_attempt(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.launchers.kubernetes.launcher.FORBIDDEN_SECONDS", 0.0)
    scene.cluster.faults.inject(Answer(403, message=LACKS_JOBS), verb="create", resource="jobs", times=None)
    job = scene.wait_for(scene.submit(max_restarts=0), "FAILED")
    assert "grant the verb create on batch/jobs" in job.message
    scene.wait_until_empty()


def test_a_secret_that_cannot_be_deleted_now_is_deleted_later(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.control.reconciler.ORPHAN_SECONDS", 0.0)
    scene.cluster.kubelet.on_start(behaviour=leave(DONE, 0))
    # Without an owner it does not go with its Job.
    scene.cluster.faults.inject(LoseAnswer(), verb="create", resource="jobs")
    scene.cluster.faults.inject(Answer(500), verb="patch", resource="secrets", times=None)
    scene.cluster.faults.inject(Answer(500), verb="delete", resource="secrets", times=3)
    scene.wait_for(scene.submit(), "SUCCEEDED")
    scene.wait_until_empty()


def test_a_secret_without_an_owner_goes_with_an_attempt_that_the_database_does_not_know(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.control.reconciler.ORPHAN_SECONDS", 0.0)
    scene.cluster.faults.inject(LoseAnswer(), verb="create", resource="jobs")
    scene.cluster.faults.inject(Answer(500), verb="patch", resource="secrets", times=None)
    job_id = scene.submit(resources={"nodes": 1})
    scene.wait_for(job_id, "RUNNING")
    with scene.services.database.write() as session:
        RemovalRepository(session).remove_some([job_id], 1000)
    scene.wait_until_empty()
