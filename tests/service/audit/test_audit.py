"""The audit log: which rows are written, who reads them, and how long they stay."""

from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from service import dashboard
from service.access.principal import Actor
from service.audit.log import NUM_REMOVED, AuditLog
from service.audit.models import AuditAction, AuditEvent
from service.http.request_origin import RequestOrigin
from service.times import now
from tests.service.api import TEAM, Api
from tests.service.databases import on_both_databases
from tests.service.keys.holders import create_key, sign_in

pytestmark = on_both_databases

LOCAL = "127.0.0.1"
START = now().replace(minute=0, second=0, microsecond=0) - timedelta(days=30)
"""Time of the first row of those that are filtered."""


def list_events(api: Api, **query: Any) -> list[dict[str, Any]]:
    response = api.admin.get("/v1/audit", params=query)
    assert response.status_code == 200, response.text
    return response.json()["items"]


def get_own_key_id(api: Api) -> str:
    keys = api.admin.get("/v1/keys").json()["items"]
    return next(key["id"] for key in keys if key["role"] == "admin")


def test_keys_that_are_created_and_revoked_are_recorded_with_who_did_it(api: Api) -> None:
    key = create_key(api, name="ci", owner="ads", role="submitter", expires_in_days=7)
    api.admin.delete(f"/v1/keys/{key['id']}")
    revoked, created = list_events(api, target=key["id"])
    assert (created["action"], revoked["action"]) == ("key_created", "key_revoked")
    for event in (created, revoked):
        assert event["actor"] == TEAM
        assert event["key_id"] == get_own_key_id(api)
        assert event["address"] == LOCAL
        assert event["details"] == {"name": "ci", "owner": "ads", "role": "submitter"}
        assert key["key"] not in str(event)


def test_what_is_refused_leaves_no_row(api: Api) -> None:
    before = list_events(api)
    assert api.admin.post("/v1/keys", json={"name": "admin", "owner": TEAM, "role": "admin"}).status_code == 409
    assert api.viewer.post("/v1/keys", json={"name": "x", "role": "admin"}).status_code == 403
    assert api.admin.delete(f"/v1/keys/{get_own_key_id(api)}").status_code == 409
    assert api.viewer.post("/v1/session/links", json={"role": "admin"}).status_code == 403
    assert list_events(api) == before


def test_a_link_a_sign_in_with_it_and_the_sign_out_are_recorded(api: Api) -> None:
    link = api.admin.post("/v1/session/links", json={"role": "viewer", "owner": "guest"}).json()
    with sign_in(api, token=link["token"]) as browser:
        browser.delete("/v1/session")
        browser.delete("/v1/session")
    signed_out, signed_in, created, *_ = list_events(api)
    assert (created["action"], created["actor"], created["target"]) == ("link_created", TEAM, "guest")
    assert created["details"]["role"] == "viewer"
    assert (signed_in["action"], signed_in["actor"]) == ("signed_in", "guest")
    assert signed_in["details"] == {"method": "link", "role": "viewer"}
    assert (signed_out["action"], signed_out["actor"]) == ("signed_out", "guest")
    assert {event["key_id"] for event in (created, signed_in, signed_out)} == {get_own_key_id(api)}
    assert link["token"] not in str(list_events(api))


def test_a_sign_in_that_fails_is_recorded_with_why(api: Api) -> None:
    key = create_key(api, owner="ads")
    api.admin.delete(f"/v1/keys/{key['id']}")
    for body in ({"key": key["key"]}, {"key": f"dlrm_{'x' * 43}"}, {"token": "nothing"}):
        assert api.anonymous.post("/v1/session", json=body).status_code == 401
    events = list_events(api, action="sign_in_failed")
    told = [(event["actor"], event["key_id"], event["target"], event["details"]) for event in events]
    assert told == [
        ("", None, "", {"method": "link", "why": "unknown"}),
        ("", None, "", {"method": "key", "why": "unknown"}),
        ("ads", key["id"], key["id"], {"method": "key", "why": "revoked"}),
    ]
    assert {event["address"] for event in events} == {LOCAL}


@pytest.fixture(scope="module")
def filled_api(shared_api: Api) -> Api:
    """Service with 25 rows about one key, an hour apart from START on."""
    with shared_api.services.database.write() as session:
        for number in range(25):
            event = AuditEvent(
                time=START + timedelta(hours=number),
                actor="ann" if number % 2 else "bob",
                action=AuditAction.QUOTA_CHANGED.value,
                target="key_filled",
                address="",
                request_id="",
                details={"number": number},
            )
            session.add(event)
            session.flush()
    return shared_api


def list_numbers(api: Api, **query: Any) -> list[int]:
    return [event["details"]["number"] for event in list_events(api, target="key_filled", **query)]


def format_hour(number: int) -> str:
    """Return the time of a row as a client may write it."""
    return f"{START + timedelta(hours=number):%Y-%m-%dT%H:%M:%SZ}"


def test_the_log_comes_in_pages_newest_first(filled_api: Api) -> None:
    query: dict[str, Any] = {"target": "key_filled", "limit": 10}
    numbers: list[int] = []
    while True:
        page = filled_api.admin.get("/v1/audit", params=query).json()
        numbers += [event["details"]["number"] for event in page["items"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert numbers == list(range(24, -1, -1))


def test_the_log_is_filtered_by_actor_action_and_time(filled_api: Api) -> None:
    assert list_numbers(filled_api, actor="ann") == list(range(23, 0, -2))
    assert list_numbers(filled_api, action="quota_changed") == list_numbers(filled_api)
    assert list_numbers(filled_api, action="key_created") == []
    assert list_numbers(filled_api, since=format_hour(20)) == [24, 23, 22, 21, 20]
    assert list_numbers(filled_api, since=format_hour(3), until=format_hour(5)) == [4, 3]
    elsewhere = (START + timedelta(hours=2)).astimezone(timezone(timedelta(hours=5)))
    assert list_numbers(filled_api, until=elsewhere.isoformat()) == [1, 0]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"action": "sung"}, "action"),
        ({"since": "yesterday"}, "since"),
        ({"until": "9999-12-31T23:59:59-14:00"}, "until"),
        ({"since": "5"}, "since"),
        ({"cursor": "x"}, "cursor"),
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"actor": "a\0"}, "actor"),
        ({"target": "a\0"}, "target"),
        ({"target": "a" * 256}, "target"),
    ],
)
def test_a_filter_that_is_wrong_is_named(filled_api: Api, query: dict[str, Any], field: str) -> None:
    response = filled_api.admin.get("/v1/audit", params=query)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == field


def make_old_rows(api: Api, num_rows: int, age: timedelta) -> None:
    with api.services.database.write() as session:
        session.add_all(
            AuditEvent(
                time=now() - age, actor="", action="signed_in", target="old", address="", request_id="", details={}
            )
            for _ in range(num_rows)
        )


def count_rows(api: Api, target: str) -> int:
    with api.services.database.read() as session:
        query = select(func.count()).select_from(AuditEvent).where(AuditEvent.target == target)
        return session.execute(query).scalar_one()


def test_a_new_row_removes_some_of_those_that_are_too_old(api: Api) -> None:
    days = api.services.settings.audit_retention_days
    make_old_rows(api, NUM_REMOVED + 5, timedelta(days=days, hours=1))
    make_old_rows(api, 3, timedelta(days=days, hours=-1))
    create_key(api)
    assert count_rows(api, "old") == 8
    create_key(api)
    assert count_rows(api, "old") == 3


def test_text_that_does_not_fit_is_cut(api: Api) -> None:
    log: AuditLog = api.services.audit
    with api.services.database.write() as session:
        actor = Actor("ann", "key_1", RequestOrigin("\0" + "a" * 100, "r" * 100))
        log.record(session, actor, AuditAction.JOB_DELETED, "t" * 300, owner="bob")
    event = list_events(api, action="job_deleted")[0]
    assert event["address"] == "\N{REPLACEMENT CHARACTER}" + "a" * 63
    assert (event["request_id"], event["target"]) == ("r" * 64, "t" * 255)
    assert event["details"] == {"owner": "bob"}


def test_a_row_goes_with_the_transaction_that_it_belongs_to(api: Api) -> None:
    def record_and_fail() -> None:
        with api.services.database.write() as session:
            api.services.audit.record(session, Actor("ann"), AuditAction.JOB_DELETED, "job_1")
            raise KeyError

    with pytest.raises(KeyError):
        record_and_fail()
    assert list_events(api, target="job_1") == []


def test_the_page_of_the_log_has_words_for_every_action() -> None:
    words = (Path(dashboard.__file__).parent / "static/audit/words.js").read_text()
    assert [action for action in AuditAction if f"  {action.value}: [" not in words] == []
