"""Idempotency keys are kept for a day."""

from datetime import timedelta

import httpx
from sqlalchemy import func, select, update

from service.access.principal import Principal, Role
from service.jobs.service import Submission
from service.store.idempotency_repository import MAX_REMOVED
from service.store.models import IdempotencyKey
from service.times import now
from tests.service.api import Api, make_document
from tests.service.databases import on_both_databases

pytestmark = on_both_databases


def submit(api: Api, key: str) -> httpx.Response:
    return api.submitter.post("/v1/jobs", json=make_document(), headers={"Idempotency-Key": key})


def age_keys(api: Api, age: timedelta) -> None:
    with api.services.database.write() as session:
        session.execute(update(IdempotencyKey).values(created_at=now() - age))


def count_keys(api: Api) -> int:
    with api.services.database.read() as session:
        return session.scalar(select(func.count()).select_from(IdempotencyKey)) or 0


def test_a_key_is_known_for_24_hours_and_then_creates_a_new_job(api: Api) -> None:
    first = submit(api, "k")
    age_keys(api, timedelta(hours=23, minutes=59))
    assert submit(api, "k").json()["id"] == first.json()["id"]
    age_keys(api, timedelta(hours=24, minutes=1))
    second = submit(api, "k")
    assert second.status_code == 201
    assert second.json()["id"] != first.json()["id"]
    assert submit(api, "k").json()["id"] == second.json()["id"]
    assert api.viewer.get(f"/v1/jobs/{first.json()['id']}").status_code == 200


def test_old_keys_are_removed_when_new_ones_are_written_a_bounded_number_at_once(api: Api) -> None:
    job_id = submit(api, "first").json()["id"]
    with api.services.database.write() as session:
        for number in range(MAX_REMOVED + 5):
            row = IdempotencyKey(owner="key_0", key=str(number), body_hash="", job_id=job_id, created_at=now())
            session.add(row)
    age_keys(api, timedelta(hours=25))
    submit(api, "second")
    assert count_keys(api) == 1 + MAX_REMOVED + 5 - MAX_REMOVED + 1
    submit(api, "third")
    assert count_keys(api) == 2
    assert submit(api, "second").status_code == 200


def test_a_key_of_one_owner_says_nothing_to_another_owners_session(api: Api) -> None:
    ann, bob = (Principal("key_1", owner, owner, Role.SUBMITTER, is_browser=True) for owner in ("ann", "bob"))
    document = make_document()
    first, _ = api.services.jobs.submit(Submission(document, ann, "k"))
    second, is_new = api.services.jobs.submit(Submission(document, bob, "k"))
    assert is_new
    assert second.id != first.id
    assert api.services.jobs.submit(Submission(document, ann, "k"))[0].id == first.id
