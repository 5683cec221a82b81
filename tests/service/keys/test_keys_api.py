from datetime import timedelta
from typing import Any

import httpx
import pytest

from service.app import create_services
from service.keys import service as key_service
from service.settings import Settings
from tests.service.api import Api

EVERY_ENDPOINT = [
    ("GET", "/v1/jobs", "viewer"),
    ("GET", "/v1/jobs/job_0", "viewer"),
    ("GET", "/v1/jobs/job_0/events", "viewer"),
    ("GET", "/v1/jobs/job_0/attempts", "viewer"),
    ("GET", "/v1/jobs/job_0/metrics", "viewer"),
    ("GET", "/v1/jobs/job_0/logs", "viewer"),
    ("GET", "/v1/jobs/job_0/checkpoints", "viewer"),
    ("GET", "/v1/capacity", "viewer"),
    ("POST", "/v1/jobs", "submitter"),
    ("POST", "/v1/plans", "submitter"),
    ("POST", "/v1/jobs/job_0/cancel", "submitter"),
    ("POST", "/v1/jobs/job_0/pause", "submitter"),
    ("POST", "/v1/jobs/job_0/resume", "submitter"),
    ("POST", "/v1/jobs/job_0/hold", "submitter"),
    ("POST", "/v1/jobs/job_0/release", "submitter"),
    ("POST", "/v1/jobs/job_0/restart", "submitter"),
    ("DELETE", "/v1/jobs/job_0", "submitter"),
    ("GET", "/v1/keys", "admin"),
    ("POST", "/v1/keys", "admin"),
    ("DELETE", "/v1/keys/key_0", "admin"),
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
        status = client.request(method, path, **make_body(method)).status_code
        assert (status == 403) == (RANKED.index(name) < RANKED.index(role))
        assert status not in {401, 500}


def test_every_route_under_v1_is_in_the_list_of_roles(shared_api: Api) -> None:
    document = shared_api.anonymous.get("/openapi.json").json()
    listed = {
        (method, path.replace("job_0", "{job_id}").replace("key_0", "{key_id}")) for method, path, _ in EVERY_ENDPOINT
    }
    routes = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    open_to_all = {"/v1/session", "/v1/ingest/{attempt_id}", "/healthz", "/readyz", "/metrics"}
    assert {route for route in routes if route[1] not in open_to_all} == listed


def test_a_new_key_is_shown_once_and_stored_as_a_hash(api: Api) -> None:
    created = api.admin.post("/v1/keys", json={"name": "ci", "role": "submitter"})
    assert created.status_code == 201
    key = created.json()
    assert api.make_client(key["key"]).get("/v1/jobs").status_code == 200
    listed = api.admin.get("/v1/keys")
    assert {"id": key["id"], "name": "ci", "role": "submitter", "created_at": key["created_at"]} in listed.json()[
        "items"
    ]
    assert key["key"] not in listed.text
    database = api.services.settings.state_directory
    assert all(key["key"].encode() not in path.read_bytes() for path in database.glob("service.sqlite3*"))


def test_a_removed_key_opens_nothing_any_more(api: Api) -> None:
    key = api.admin.post("/v1/keys", json={"name": "ci", "role": "viewer"}).json()
    assert api.admin.delete(f"/v1/keys/{key['id']}").status_code == 204
    assert api.make_client(key["key"]).get("/v1/jobs").status_code == 401
    assert api.admin.delete(f"/v1/keys/{key['id']}").status_code == 404


def test_the_last_admin_key_cannot_be_removed(api: Api) -> None:
    admin = next(key for key in api.admin.get("/v1/keys").json()["items"] if key["role"] == "admin")
    response = api.admin.delete(f"/v1/keys/{admin['id']}")
    assert response.status_code == 409
    assert "last admin key" in response.json()["detail"]


@pytest.mark.parametrize("body", [{"name": "x"}, {"name": "x", "role": "king"}, {"name": "", "role": "viewer"}])
def test_a_key_needs_a_name_and_a_role(shared_api: Api, body: dict[str, str]) -> None:
    response = shared_api.admin.post("/v1/keys", json=body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] in {"role", "name"}


def sign_in(api: Api) -> httpx.Client:
    browser = api.make_client(None)
    response = browser.post("/v1/session", json={"token": api.services.keys.create_sign_in_token()})
    assert response.status_code == 204
    return browser


def test_a_sign_in_link_opens_one_browser_session_with_a_strict_cookie(api: Api) -> None:
    token = api.services.keys.create_sign_in_token()
    response = api.anonymous.post("/v1/session", json={"token": token})
    cookie = response.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    again = api.make_client(None).post("/v1/session", json={"token": token})
    assert again.status_code == 401
    assert token not in again.text


def test_a_signed_in_browser_may_what_the_admin_may_until_it_signs_out(api: Api) -> None:
    browser = sign_in(api)
    assert browser.get("/v1/keys").status_code == 200
    copied_session = api.make_client(None)
    copied_session.cookies = httpx.Cookies(browser.cookies)
    assert browser.delete("/v1/session").status_code == 204
    assert copied_session.get("/v1/keys").status_code == 401


def test_another_page_cannot_use_the_cookie_to_change_anything(api: Api) -> None:
    browser = sign_in(api)
    job_id = api.submit()["id"]
    for site, status in (("same-site", 403), ("cross-site", 403), ("same-origin", 202)):
        response = browser.post(f"/v1/jobs/{job_id}/cancel", headers={"Sec-Fetch-Site": site})
        assert response.status_code == status


def test_a_sign_in_link_is_good_for_ten_minutes(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    token = api.services.keys.create_sign_in_token()
    real_now = key_service.now
    monkeypatch.setattr(key_service, "now", lambda: real_now() + timedelta(minutes=10, seconds=1))
    assert api.anonymous.post("/v1/session", json={"token": token}).status_code == 401


def test_the_first_start_alone_makes_an_admin_key(settings: Settings) -> None:
    keys = create_services(settings).keys
    secret = keys.create_first_admin_key()
    assert secret is not None
    assert keys.create_first_admin_key() is None
    principal = keys.find_principal_by_key(secret)
    assert principal is not None
    assert principal.role == "admin"
