"""The client against a real service whose trainer fails at once."""

from collections.abc import Iterator

import httpx
import pytest

from cli.demo.service_process import run_service
from service.client import Client, EvaluationMetric, ServiceError
from tests.service.databases import lend_database

SETTINGS = {"DLRM_TRAINER_PYTHON": "/bin/false", "DLRM_NUM_CORES": "2", "DLRM_RECONCILE_INTERVAL_SECONDS": "0.2"}
POLL_SECONDS = 0.1


@pytest.fixture(scope="module")
def client(
    tmp_path_factory: pytest.TempPathFactory, database_kind: str, request: pytest.FixtureRequest
) -> Iterator[Client]:
    state_directory = tmp_path_factory.mktemp("state")
    with (
        lend_database(database_kind, state_directory, request) as url,
        run_service(state_directory, {**SETTINGS, "DLRM_DATABASE_URL": url}) as client,
    ):
        yield client


def make_document(name: str = "first", **labels: str) -> dict[str, object]:
    return {
        "name": name,
        "labels": labels,
        "max_restarts": 0,
        "data": {"format": "synthetic", "synthetic": {"num_rows": 1000}},
        "batch": {"global_size": 64},
        "resources": {"memory": "1GiB"},
    }


def test_a_job_is_followed_to_its_end(client: Client) -> None:
    job = client.submit(make_document())
    *_, last = client.follow(job.id, POLL_SECONDS)
    assert last.has_ended
    assert last.state == "FAILED"
    assert last.spec["batch"]["global_size"] == 64
    assert {number.name for number in last.derived} >= {"world_size"}


def test_one_idempotency_key_makes_one_job(client: Client) -> None:
    jobs = {client.submit(make_document(), idempotency_key="the-same").id for _ in range(2)}
    assert len(jobs) == 1
    with pytest.raises(ServiceError) as refused:
        client.submit(make_document("other"), idempotency_key="the-same")
    assert refused.value.problem.slug == "idempotency-mismatch"


def test_a_bad_document_is_refused_field_by_field(client: Client) -> None:
    with pytest.raises(ServiceError) as refused:
        client.submit({**make_document(), "precision": "fp8"})
    problem = refused.value.problem
    assert (problem.status, problem.slug) == (422, "invalid-job")
    assert [error.field for error in problem.errors] == ["precision"]
    assert "fp32" in problem.errors[0].valid


def test_events_attempts_logs_and_metrics_of_an_ended_job(client: Client) -> None:
    job = client.submit(make_document())
    *_, ended = client.follow(job.id, POLL_SECONDS)
    changes = [event.to_state for event in client.events(job.id) if event.kind == "state"]
    assert (changes[0], changes[-1]) == ("QUEUED", "FAILED")
    attempts = list(client.attempts(job.id))
    assert [attempt.number for attempt in attempts] == list(range(1, ended.num_attempts + 1))
    assert client.logs(job.id, rank="launch").complete
    assert [metric for metric in client.metrics(job.id) if isinstance(metric, EvaluationMetric)] == []


def test_an_ended_job_cannot_be_cancelled(client: Client) -> None:
    job = client.submit(make_document())
    list(client.follow(job.id, POLL_SECONDS))
    with pytest.raises(ServiceError) as refused:
        client.cancel(job.id)
    assert refused.value.problem.slug == "conflict"


def test_a_restart_with_one_idempotency_key_makes_one_new_job(client: Client) -> None:
    job = client.submit(make_document("again"))
    list(client.follow(job.id, POLL_SECONDS))
    again = {client.restart(job.id, idempotency_key="again").id for _ in range(2)}
    assert len(again) == 1
    new = client.restart(job.id)
    assert new.id not in {job.id, *again}
    assert (new.name, new.restarted_from) == ("again", job.id)


def test_capacity_is_what_the_service_was_given(client: Client) -> None:
    capacity = client.capacity()
    assert capacity.num_cores == 2
    assert capacity.memory_bytes is not None
    assert capacity.memory_bytes_free is not None
    assert 0 <= capacity.memory_bytes_free <= capacity.memory_bytes


def test_a_key_works_with_its_role_until_it_is_revoked(client: Client) -> None:
    created = client.create_key("reader", "viewer", owner="readers", expires_in_days=7)
    assert created.owner == "readers"
    assert created.expires_at is not None
    with Client(client.url, created.key) as reader:
        assert reader.capacity().num_cores == 2
        with pytest.raises(ServiceError) as refused:
            reader.submit(make_document())
        assert refused.value.problem.slug == "forbidden"
        keys = list(client.keys())
        assert created.id in {key.id for key in keys}
        client.revoke_key(created.id)
        with pytest.raises(ServiceError) as refused:
            reader.capacity()
        assert refused.value.problem.slug == "unauthenticated"
    assert [event.action for event in client.audit(target=created.id)] == ["key_revoked", "key_created"]
    assert list(client.audit(target=created.id, until=created.created_at)) == []
    assert len(list(client.audit(target=created.id, since=created.created_at))) == 2


def test_a_login_link_is_for_the_role_and_owner_that_were_asked_for(client: Client) -> None:
    link = client.create_login_link("viewer", owner="guest", minutes=5)
    assert (link.role, link.owner) == ("viewer", "guest")
    response = httpx.post(f"{client.url}/v1/session", json={"token": link.token})
    assert response.status_code == 204


def test_jobs_are_found_by_label_and_name_over_all_pages(client: Client) -> None:
    submitted = [client.submit(make_document("paged", team="pages")).id for _ in range(60)]
    found = [job.id for job in client.jobs(label="team:pages")]
    assert found == submitted[::-1]
    assert {job.id for job in client.jobs(name="paged")} == set(submitted)
