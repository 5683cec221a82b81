"""Browsers: sign-in with a key or a link, the session, and its end."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from service.http.gate import SESSION_COOKIE
from service.settings import Settings
from service.times import now
from tests.service.api import TEAM, Api, serve_api
from tests.service.keys.holders import create_key, expire_key, expire_links, expire_sessions, sign_in

WEEK_SECONDS = 7 * 86_400


def create_link(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    response = client.post("/v1/session/links", json=fields)
    assert response.status_code == 201, response.text
    return response.json()


def get_role(browser: httpx.Client) -> str:
    """Return the highest role that a browser has."""
    paths = {"admin": "/v1/keys/key_0", "submitter": "/v1/jobs/job_0/cancel"}
    for (role, path), method in zip(paths.items(), ("DELETE", "POST"), strict=True):
        if browser.request(method, path).status_code == 404:
            return role
    return "viewer" if browser.get("/v1/capacity").status_code == 200 else "none"


def get_owners(browser: httpx.Client) -> set[str]:
    """Return the owners whose keys a browser sees."""
    return {key["owner"] for key in browser.get("/v1/keys").json()["items"]}


@pytest.mark.parametrize("role", ["viewer", "submitter", "admin"])
def test_a_key_opens_a_session_of_its_own_role_and_owner(shared_api: Api, role: str) -> None:
    key = create_key(shared_api, role=role, owner=f"{role}-owner")
    with sign_in(shared_api, key=key["key"]) as browser:
        assert get_role(browser) == role
        if role != "admin":
            assert get_owners(browser) == {f"{role}-owner"}


@pytest.mark.parametrize("role", ["viewer", "submitter", "admin"])
def test_a_link_opens_a_session_of_the_role_and_owner_that_it_was_made_for(shared_api: Api, role: str) -> None:
    create_key(shared_api, owner=f"guest-{role}")
    link = create_link(shared_api.admin, role=role, owner=f"guest-{role}")
    assert (link["role"], link["owner"]) == (role, f"guest-{role}")
    with sign_in(shared_api, token=link["token"]) as browser:
        assert get_role(browser) == role
        if role != "admin":
            assert get_owners(browser) == {f"guest-{role}"}


def test_a_link_has_ten_minutes_and_the_role_and_owner_of_its_key(
    shared_api: Api,
) -> None:
    link = create_link(shared_api.submitter)
    assert (link["role"], link["owner"]) == ("submitter", TEAM)
    left = datetime.fromisoformat(link["expires_at"]) - now()
    assert left <= timedelta(minutes=10)
    longer = create_link(shared_api.submitter, minutes=60)
    assert datetime.fromisoformat(longer["expires_at"]) - now() > timedelta(minutes=10)


@pytest.mark.parametrize("minutes", [0, 1441, 1.5, "10", True, None])
def test_a_link_is_for_a_minute_to_a_day(shared_api: Api, minutes: Any) -> None:
    response = shared_api.admin.post("/v1/session/links", json={"minutes": minutes})
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "minutes"


def test_a_link_works_once_also_when_many_use_it_at_once(shared_api: Api) -> None:
    token = create_link(shared_api.admin)["token"]

    def use(_: int) -> int:
        with shared_api.make_client(None) as browser:
            return browser.post("/v1/session", json={"token": token}).status_code

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(use, range(6))) == [204, 401, 401, 401, 401, 401]
    refused = shared_api.anonymous.post("/v1/session", json={"token": token})
    assert token not in refused.text
    assert "`dlrm login-link` makes another one" in refused.json()["detail"]


def test_a_link_that_is_too_old_opens_nothing(api: Api) -> None:
    token = create_link(api.admin)["token"]
    expire_links(api)
    assert api.anonymous.post("/v1/session", json={"token": token}).status_code == 401


@pytest.mark.parametrize("end", ["revoked", "expired"])
def test_links_and_sessions_end_with_their_key(shared_api: Api, end: str) -> None:
    key = create_key(shared_api, role="admin")
    links = [create_link(shared_api.make_client(key["key"]))["token"] for _ in range(2)]
    with sign_in(shared_api, key=key["key"]) as first, sign_in(shared_api, token=links[0]) as second:
        assert get_role(first) == get_role(second) == "admin"
        if end == "revoked":
            shared_api.admin.delete(f"/v1/keys/{key['id']}")
        else:
            expire_key(shared_api, key["id"])
        assert first.get("/v1/jobs").status_code == second.get("/v1/jobs").status_code == 401
    assert shared_api.anonymous.post("/v1/session", json={"token": links[1]}).status_code == 401
    refused = shared_api.anonymous.post("/v1/session", json={"key": key["key"]})
    assert refused.status_code == 401
    assert f"this API key {'was revoked' if end == 'revoked' else 'expired'} at" in refused.json()["detail"]


def test_a_session_linked_for_another_owner_ends_with_the_linking_key(shared_api: Api) -> None:
    key = create_key(shared_api, role="admin")
    token = create_link(shared_api.make_client(key["key"]), role="viewer", owner="somebody-else")["token"]
    with sign_in(shared_api, token=token) as browser:
        assert browser.get("/v1/jobs").status_code == 200
        shared_api.admin.delete(f"/v1/keys/{key['id']}")
        assert browser.get("/v1/jobs").status_code == 401


def test_the_cookie_is_hidden_from_scripts_and_other_sites_and_lasts_a_week(shared_api: Api) -> None:
    response = shared_api.make_client(None).post("/v1/session", json={"key": create_key(shared_api)["key"]})
    attributes = {part.strip().lower() for part in response.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= attributes
    assert "secure" not in attributes
    assert f"max-age={WEEK_SECONDS}" in attributes


def test_over_https_the_cookie_never_travels_without_it(settings: Settings) -> None:
    through_proxy = {"X-Forwarded-Proto": "https"}
    trusting = settings.model_copy(update={"trusted_proxies": "127.0.0.1"})
    with serve_api(trusting, runs_control_loop=False) as api, api.make_client(None) as browser:
        response = browser.post("/v1/session", json={"key": create_key(api)["key"]}, headers=through_proxy)
        assert "; secure" in response.headers["set-cookie"].lower()
        assert "; secure" in browser.delete("/v1/session", headers=through_proxy).headers["set-cookie"].lower()


def test_a_session_is_no_longer_than_its_key(shared_api: Api) -> None:
    key = create_key(shared_api, expires_at=(now() + timedelta(hours=1)).isoformat())
    response = shared_api.make_client(None).post("/v1/session", json={"key": key["key"]})
    found = re.search(r"max-age=(\d+)", response.headers["set-cookie"].lower())
    assert found is not None
    assert 0 < int(found[1]) <= 3600


def test_a_session_ends_after_its_time(api: Api) -> None:
    with sign_in(api, key=create_key(api)["key"]) as browser:
        assert browser.get("/v1/jobs").status_code == 200
        expire_sessions(api)
        assert browser.get("/v1/jobs").status_code == 401


def test_a_session_ends_at_sign_out_also_for_who_copied_its_cookie(shared_api: Api) -> None:
    with sign_in(shared_api, key=create_key(shared_api)["key"]) as browser:
        copy = shared_api.make_client(None)
        copy.cookies = httpx.Cookies(browser.cookies)
        assert copy.get("/v1/jobs").status_code == 200
        assert browser.delete("/v1/session").status_code == 204
        assert SESSION_COOKIE not in browser.cookies
        assert copy.get("/v1/jobs").status_code == 401
        assert copy.delete("/v1/session").status_code == 204


def test_a_new_sign_in_ends_the_session_that_the_browser_had(shared_api: Api) -> None:
    key = create_key(shared_api)["key"]
    with sign_in(shared_api, key=key) as browser:
        copy = shared_api.make_client(None)
        copy.cookies = httpx.Cookies(browser.cookies)
        assert browser.post("/v1/session", json={"key": key}).status_code == 204
        assert browser.get("/v1/jobs").status_code == 200
        assert copy.get("/v1/jobs").status_code == 401


@pytest.mark.parametrize(
    "body", [{}, {"key": None}, {"key": "dlrm_x", "token": "x"}, {"key": ""}, {"key": "x" * 201}, {"token": 5}]
)
def test_a_sign_in_is_with_either_a_key_or_a_link(shared_api: Api, body: dict[str, Any]) -> None:
    response = shared_api.anonymous.post("/v1/session", json=body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] in {"key", "token"}


def test_the_link_of_the_start_is_for_the_admin(shared_api: Api) -> None:
    with sign_in(shared_api, token=shared_api.services.sessions.create_start_link()) as browser:
        assert get_role(browser) == "admin"


def test_what_a_session_of_another_owner_does_is_in_that_owners_name(shared_api: Api) -> None:
    token = create_link(shared_api.admin, role="submitter", owner="zoe")["token"]
    with sign_in(shared_api, token=token) as browser:
        job_id = shared_api.submit()["id"]
        document = shared_api.admin.get(f"/v1/jobs/{job_id}").json()["spec"]
        submitted = browser.post("/v1/jobs", json=document)
        assert submitted.status_code == 201, submitted.text
        assert submitted.json()["created_by"] == "zoe"
