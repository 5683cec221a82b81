"""Keys: who may make, list and revoke which, and when one is refused."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from service.app import create_services
from service.http.request_origin import NO_REQUEST
from service.keys import service, use_recorder
from service.keys.models import ApiKey
from service.keys.service import KeyService, find_key
from service.settings import Settings
from service.times import now
from tests.patience import wait_until
from tests.service.api import TEAM, Api
from tests.service.databases import on_both_databases
from tests.service.keys.holders import create_key, expire_key, get_key, list_keys, sign_in

EVERY_ENDPOINT = [
    ("GET", "/v1/jobs", "viewer"),
    ("GET", "/v1/jobs/job_0", "viewer"),
    ("GET", "/v1/jobs/job_0/stream", "viewer"),
    ("GET", "/v1/stream", "viewer"),
    ("GET", "/v1/labels", "viewer"),
    ("GET", "/v1/facets", "viewer"),
    ("GET", "/v1/results", "viewer"),
    ("GET", "/v1/schema", "viewer"),
    ("POST", "/v1/documents", "submitter"),
    ("GET", "/v1/jobs/job_0/document", "viewer"),
    ("GET", "/v1/jobs/job_0/advice", "viewer"),
    ("GET", "/v1/jobs/job_0/events", "viewer"),
    ("GET", "/v1/jobs/job_0/attempts", "viewer"),
    ("GET", "/v1/jobs/job_0/metrics", "viewer"),
    ("GET", "/v1/jobs/job_0/curves", "viewer"),
    ("GET", "/v1/jobs/job_0/logs", "viewer"),
    ("GET", "/v1/jobs/job_0/checkpoints", "viewer"),
    *(("GET", f"/v1/{path}", "viewer") for path in ("capacity", "capacity/use", "capacity/history", "queue")),
    ("GET", "/v1/keys", "viewer"),
    ("GET", "/metrics", "viewer"),
    ("GET", "/v1/jobs/job_0/logs/matches", "viewer"),
    ("GET", "/v1/jobs/job_0/artifacts", "viewer"),
    ("GET", "/v1/jobs/job_0/artifacts/model", "viewer"),
    ("GET", "/v1/retention", "admin"),
    ("GET", "/v1/me", "viewer"),
    ("GET", "/v1/compare", "viewer"),
    ("GET", "/v1/schedules", "viewer"),
    ("POST", "/v1/schedules", "submitter"),
    ("GET", "/v1/schedules/sch_0", "viewer"),
    ("PATCH", "/v1/schedules/sch_0", "submitter"),
    ("DELETE", "/v1/schedules/sch_0", "submitter"),
    ("POST", "/v1/schedules/sch_0/run", "submitter"),
    ("GET", "/v1/webhooks", "viewer"),
    ("POST", "/v1/webhooks", "submitter"),
    ("DELETE", "/v1/webhooks/whk_0", "submitter"),
    ("POST", "/v1/webhooks/whk_0/test", "submitter"),
    ("PATCH", "/v1/jobs/job_0", "submitter"),
    ("POST", "/v1/session/links", "viewer"),
    ("POST", "/v1/jobs", "submitter"),
    ("POST", "/v1/plans", "submitter"),
    ("POST", "/v1/jobs/job_0/cancel", "submitter"),
    ("POST", "/v1/jobs/job_0/pause", "submitter"),
    ("POST", "/v1/jobs/job_0/resume", "submitter"),
    ("POST", "/v1/keys", "admin"),
    ("DELETE", "/v1/keys/key_0", "admin"),
    ("GET", "/v1/audit", "admin"),
    ("POST", "/v1/jobs/job_0/restart", "submitter"),
    ("DELETE", "/v1/jobs/job_0", "submitter"),
    ("POST", "/v1/jobs/job_0/hold", "submitter"),
    ("POST", "/v1/jobs/job_0/release", "submitter"),
    ("GET", "/v1/quotas", "viewer"),
    ("PUT", "/v1/quotas/owner_0", "admin"),
    ("DELETE", "/v1/quotas/owner_0", "admin"),
]
RANKED = ["viewer", "submitter", "admin"]


def make_body(method: str) -> dict[str, Any]:
    return {"json": {"name": "x", "role": "viewer"}} if method == "POST" else {}


@pytest.mark.parametrize(("method", "path", "role"), EVERY_ENDPOINT)
def test_every_endpoint_wants_a_key_of_at_least_its_role(shared_api: Api, method: str, path: str, role: str) -> None:
    api = shared_api
    for caller in (api.anonymous, api.make_client("dlrm_wrong")):
        response = caller.request(method, path, **make_body(method))
        assert response.status_code == 401
        assert response.json()["type"] == "urn:dlrm:problem:unauthenticated"
        assert response.headers["www-authenticate"] == "Bearer"
    for name, client in (("viewer", api.viewer), ("submitter", api.submitter), ("admin", api.admin)):
        # Without its body: that of a stream has no end.
        with client.stream(method, path, **make_body(method)) as response:
            status = response.status_code
        assert (status == 403) == (RANKED.index(name) < RANKED.index(role))
        assert status not in {401, 500}


def test_every_route_under_v1_is_in_the_list_of_roles(shared_api: Api) -> None:
    document = shared_api.anonymous.get("/openapi.json").json()
    ids = {f"{kind[:3]}_0": f"{{{kind}_id}}" for kind in ("job", "key", "schedule")}
    names = {**ids, "whk_0": "{webhook_id}", "owner_0": "{owner}", "model": "{name}"}
    listed = {
        (method, "/".join(names.get(part, part) for part in path.split("/"))) for method, path, _ in EVERY_ENDPOINT
    }
    routes = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    open_to_all = {"/v1/session", "/v1/ingest/{attempt_id}", "/healthz", "/readyz"}
    assert {route for route in routes if route[1] not in open_to_all} == listed


def test_a_sender_learns_who_it_is(shared_api: Api) -> None:
    key = create_key(shared_api, name="laptop", role="viewer", owner="bea", expires_in_days=3)
    with shared_api.make_client(key["key"]) as client:
        me = client.get("/v1/me").json()
    assert me == {
        "key_id": key["id"],
        "name": "laptop",
        "owner": "bea",
        "role": "viewer",
        "is_browser": False,
        "expires_at": key["expires_at"],
    }


def test_a_new_key_is_shown_once_and_stored_as_a_hash(api: Api) -> None:
    created = api.admin.post("/v1/keys", json={"name": "ci", "role": "submitter"})
    assert created.status_code == 201
    key = created.json()
    assert api.make_client(key["key"]).get("/v1/jobs").status_code == 200
    listed = get_key(api, key["id"])
    del listed["last_used_at"]
    assert listed == {
        "id": key["id"],
        "name": "ci",
        "owner": "ci",
        "role": "submitter",
        "created_at": key["created_at"],
        "expires_at": None,
        "revoked_at": None,
    }
    database = api.services.settings.state_directory
    assert all(key["key"].encode() not in path.read_bytes() for path in database.glob("service.sqlite3*"))


def test_a_signed_in_browser_makes_no_key_unless_it_sends_one(shared_api: Api) -> None:
    admin = create_key(shared_api, role="admin")
    body = {"name": "outlives", "role": "admin"}
    with sign_in(shared_api, key=admin["key"]) as browser:
        refused = browser.post("/v1/keys", json=body)
        assert refused.status_code == 403
        assert "Authorization: Bearer" in refused.json()["detail"]
        made = browser.post("/v1/keys", json=body, headers={"Authorization": f"Bearer {admin['key']}"})
        assert made.status_code == 201


def test_an_owner_has_one_key_of_a_name_until_it_is_revoked(shared_api: Api) -> None:
    first = create_key(shared_api, name="laptop", owner="ann")
    assert create_key(shared_api, name="laptop", owner="bob")["name"] == "laptop"
    again = shared_api.admin.post("/v1/keys", json={"name": "laptop", "owner": "ann", "role": "viewer"})
    assert again.status_code == 409
    assert again.json()["type"] == "urn:dlrm:problem:conflict"
    assert "ann already has a key named laptop; choose another name" in again.json()["detail"]
    shared_api.admin.delete(f"/v1/keys/{first['id']}")
    assert create_key(shared_api, name="laptop", owner="ann")["id"] != first["id"]


def test_of_keys_made_at_once_under_one_name_there_is_one(shared_api: Api) -> None:
    body = {"name": "race", "role": "viewer"}
    with ThreadPoolExecutor(6) as pool:
        statuses = list(pool.map(lambda _: shared_api.admin.post("/v1/keys", json=body).status_code, range(6)))
    assert sorted(statuses) == [201, 409, 409, 409, 409, 409]


def test_a_revoked_key_opens_nothing_any_more_and_stays_in_the_list(shared_api: Api) -> None:
    key = create_key(shared_api)
    assert shared_api.admin.delete(f"/v1/keys/{key['id']}").status_code == 204
    response = shared_api.make_client(key["key"]).get("/v1/jobs")
    assert response.status_code == 401
    assert "this API key was revoked at" in response.json()["detail"]
    assert get_key(shared_api, key["id"])["revoked_at"] is not None
    assert shared_api.admin.delete(f"/v1/keys/{key['id']}").status_code == 404


def test_a_key_expires(shared_api: Api) -> None:
    key = create_key(shared_api, expires_in_days=30)
    lifetime = datetime.fromisoformat(key["expires_at"]) - datetime.fromisoformat(key["created_at"])
    assert lifetime.days == 29 or lifetime == timedelta(days=30)
    client = shared_api.make_client(key["key"])
    assert client.get("/v1/jobs").status_code == 200
    expire_key(shared_api, key["id"])
    response = client.get("/v1/jobs")
    assert response.status_code == 401
    assert "this API key expired at" in response.json()["detail"]


def test_the_time_of_an_expiry_may_be_given_in_any_zone(shared_api: Api) -> None:
    key = create_key(shared_api, expires_at="2030-01-31T12:00:00+05:00")
    assert datetime.fromisoformat(key["expires_at"]) == datetime(2030, 1, 31, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"expires_in_days": 0}, "expires_in_days"),
        ({"expires_in_days": 3651}, "expires_in_days"),
        ({"expires_in_days": True}, "expires_in_days"),
        ({"expires_in_days": "7"}, "expires_in_days"),
        ({"expires_at": "2020-01-31T12:00:00Z"}, "expires_at"),
        ({"expires_at": "2030-01-31T12:00:00"}, "expires_at"),
        ({"expires_at": "9999-12-31T23:59:59-14:00"}, "expires_at"),
        ({"expires_at": "tomorrow"}, "expires_at"),
        ({"owner": "reconciler"}, "owner"),
        ({"expires_at": 4_000_000_000}, "expires_at"),
        ({"expires_at": "2030-01-31T12:00:00Z", "expires_in_days": 7}, "expires_at"),
        ({"name": ""}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": "a" * 64}, "name"),
        ({"name": None}, "name"),
        ({"owner": ""}, "owner"),
        ({"owner": "a b"}, "owner"),
        ({"role": "king"}, "role"),
        ({"role": None}, "role"),
        ({"rank": "x"}, "rank"),
    ],
)
def test_a_key_with_a_field_that_is_wrong_is_refused_by_its_name(
    shared_api: Api, fields: dict[str, Any], field: str
) -> None:
    response = shared_api.admin.post("/v1/keys", json={"name": "x", "role": "viewer"} | fields)
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == [field]


def test_an_admin_lists_all_keys_and_others_those_of_their_owner(shared_api: Api) -> None:
    key = create_key(shared_api, owner="ann-list")
    assert [item["id"] for item in list_keys(shared_api.make_client(key["key"]))] == [key["id"]]
    assert {item["owner"] for item in list_keys(shared_api.viewer)} == {TEAM}
    assert {TEAM, "ann-list"} <= {item["owner"] for item in list_keys(shared_api.admin)}


def test_keys_come_in_pages_oldest_first(shared_api: Api) -> None:
    ids = [create_key(shared_api, owner="pages", role="admin")["id"] for _ in range(5)]
    everyone = [item["id"] for item in list_keys(shared_api.admin)]
    first = shared_api.admin.get("/v1/keys", params={"limit": 2}).json()
    assert [item["id"] for item in first["items"]] == everyone[:2]
    second = shared_api.admin.get("/v1/keys", params={"limit": 200, "cursor": first["next_cursor"]}).json()
    assert [item["id"] for item in second["items"]] == everyone[2:]
    assert everyone[-5:] == ids
    assert shared_api.admin.get("/v1/keys", params={"cursor": "x"}).status_code == 422


def test_the_last_admin_key_that_works_cannot_be_revoked(api: Api) -> None:
    own = next(key["id"] for key in list_keys(api.admin) if key["role"] == "admin")
    expired, revoked = create_key(api, role="admin"), create_key(api, role="admin")
    expire_key(api, expired["id"])
    api.admin.delete(f"/v1/keys/{revoked['id']}")
    response = api.admin.delete(f"/v1/keys/{own}")
    assert response.status_code == 409
    assert "last admin key" in response.json()["detail"]
    assert api.admin.delete(f"/v1/keys/{expired['id']}").status_code == 204
    assert api.admin.delete("/v1/keys/key_nowhere").status_code == 404


def test_two_admins_that_revoke_each_other_at_once_leave_one(api: Api) -> None:
    admins = [key["id"] for key in list_keys(api.admin) if key["role"] == "admin"]
    admins.append(create_key(api, role="admin")["id"])
    with ThreadPoolExecutor(2) as pool:
        revoked = [pool.submit(api.services.keys.revoke, key_id) for key_id in admins]
    assert sum(future.exception() is None for future in revoked) == 1


def test_only_a_service_without_an_admin_key_that_works_makes_one(settings: Settings) -> None:
    services = create_services(settings)
    secret = services.keys.ensure_admin()
    assert secret is not None
    assert services.keys.ensure_admin() is None
    principal = services.keys.authenticate(secret, NO_REQUEST)
    assert (principal.name, principal.owner, principal.role) == ("admin", "admin", "admin")
    services.key_uses.close()
    services.database.close()


def test_requests_that_come_at_once_look_their_key_up_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    client, lookups = api.make_client(create_key(api)["key"]), list[str]()

    def find(session: Session, secret: str) -> ApiKey:
        lookups.append(secret)
        time.sleep(0.05)
        return find_key(session, secret)

    monkeypatch.setattr(service, "find_key", find)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.get("/v1/me").status_code, range(8)))
    assert answers == [200] * 8
    assert len(lookups) == 1


def test_a_service_whose_last_admin_key_has_expired_makes_another_one_at_its_start(api: Api) -> None:
    first = api.services.keys.ensure_admin()
    assert first is None
    for key in list_keys(api.admin):
        expire_key(api, key["id"])
    second = api.services.keys.ensure_admin()
    assert second is not None
    expire_key(
        api, next(key["id"] for key in list_keys(api.make_client(second)) if key["name"] == "admin" == key["owner"])
    )
    third = api.services.keys.ensure_admin()
    assert third is not None
    assert api.make_client(third).get("/v1/audit").status_code == 200
    assert api.make_client(second).get("/v1/audit").status_code == 401


def test_the_last_use_of_a_key_is_known_to_the_minute(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    key = create_key(api)
    client = api.make_client(key["key"])
    set_clock = make_clock(monkeypatch)

    def use(at: datetime) -> None:
        set_clock(at)
        assert client.get("/v1/capacity").status_code == 200

    def get_last_use() -> datetime | None:
        time = get_key(api, key["id"])["last_used_at"]
        return datetime.fromisoformat(time) if time else None

    assert get_last_use() is None
    start = now()
    use(start)
    wait_until(lambda: get_last_use() == start)
    use(start + timedelta(seconds=61))
    wait_until(lambda: get_last_use() == start + timedelta(seconds=61))
    use(start + timedelta(seconds=120))
    with sign_in(api, key=key["key"]) as browser:
        browser.get("/v1/capacity")
    api.services.key_uses.close()
    assert get_last_use() == start + timedelta(seconds=61)


def make_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[datetime], None]:
    """Return a function that sets the clock of the records of uses."""
    return lambda time: monkeypatch.setattr(use_recorder, "now", lambda: time)


def test_no_request_waits_for_the_record_of_its_use(api: Api) -> None:
    key = create_key(api)
    with api.services.database.write():
        # On SQLite nobody else can write now.
        assert api.make_client(key["key"]).get("/v1/capacity").status_code == 200
    wait_until(lambda: get_key(api, key["id"])["last_used_at"])


def test_services_that_start_at_once_make_one_admin_key(settings: Settings) -> None:
    services = [create_services(settings).keys for _ in range(4)]
    together = threading.Barrier(len(services))

    def start(keys: KeyService) -> str | None:
        together.wait()
        return keys.ensure_admin()

    with ThreadPoolExecutor(len(services)) as pool:
        secrets = list(pool.map(start, services))
    assert len([secret for secret in secrets if secret is not None]) == 1


@on_both_databases
def test_keys_are_found_by_name_owner_role_state_and_id(api: Api) -> None:
    one = create_key(api, name="laptop", owner="ann", expires_in_days=1)
    other = create_key(api, name="Ann_2", owner="ads", role="submitter")
    plain = create_key(api, name="Annx2", owner="ads")

    def find(**query: Any) -> list[str]:
        page = api.admin.get("/v1/keys", params={"limit": 200, **query})
        assert page.status_code == 200, page.text
        return [key["name"] for key in page.json()["items"]]

    assert find(q="ANN") == ["laptop", "Ann_2", "Annx2"]
    assert find(q="ann_") == ["Ann_2"]
    assert find(q="ann", order="newest") == ["Annx2", "Ann_2", "laptop"]
    assert find(q="ann", role="submitter") == ["Ann_2"]
    assert find(id=[plain["id"], one["id"], "no id"]) == ["laptop", "Annx2"]
    api.admin.delete(f"/v1/keys/{other['id']}")
    expire_key(api, one["id"])
    assert [find(q="ann", state=state) for state in ("valid", "expired", "revoked")] == [
        ["Annx2"],
        ["laptop"],
        ["Ann_2"],
    ]
    first = api.admin.get("/v1/keys?order=newest&limit=1").json()
    assert first["items"][0]["id"] == plain["id"]
    assert find(order="newest", cursor=first["next_cursor"])[:2] == ["Ann_2", "laptop"]
    assert api.viewer.get("/v1/keys?q=ann").json()["items"] == []
