"""What attackers know and want: keys, sessions, links and tokens of every kind, and what they must not change."""

from dataclasses import dataclass, field
from typing import Any

import httpx

from service.access.secret import hash_secret
from service.http.gate import SESSION_COOKIE
from tests.service.api import Api
from tests.service.keys.holders import create_key, list_keys
from tests.service.reports.attempts import TOKEN, begin_next_attempt


@dataclass
class Scene:
    """A service with a running and an ended attempt, and credentials of all kinds."""

    api: Api
    job_id: str
    """Job of the owner of `api`'s keys, with an attempt that runs."""
    attempt_id: str
    ended_attempt_id: str
    other_attempt_id: str
    """Attempt that runs, with another token."""
    secrets: dict[str, str] = field(default_factory=dict[str, str])
    key_ids: dict[str, str] = field(default_factory=dict[str, str])

    def client(self, secret: str) -> httpx.Client:
        """Return a client that sends one of the secrets as its key."""
        return self.api.make_client(self.secrets[secret])

    def list_jobs(self, key: str) -> httpx.Response:
        return self.api.make_client(key).get("/v1/jobs")

    def browser(self, secret: str, **headers: str) -> httpx.Client:
        """Return a browser that has the cookie of a session."""
        return self.cookie(self.secrets[secret], **headers)

    def cookie(self, token: str, **headers: str) -> httpx.Client:
        """Return a browser with any cookie."""
        client = self.api.make_client(None)
        client.headers.update({"Cookie": f"{SESSION_COOKIE}={token}", **headers})
        return client

    def push(self, attempt_id: str, token: str | None) -> httpx.Response:
        """Push a report that nobody has measured."""
        body = {"rank": 0, "stream": "metrics", "first_seq": 1, "lines": []}
        headers = {"Authorization": f"Bearer {token}".strip()} if token is not None else {}
        return self.api.anonymous.post(f"/v1/ingest/{attempt_id}", json=body, headers=headers)

    def take_state(self) -> object:
        """Return all that no attack may change."""
        keys = [{**key, "last_used_at": None} for key in list_keys(self.api.admin)]
        jobs = [(job["id"], job["state"]) for job in self.api.admin.get("/v1/jobs").json()["items"]]
        metrics = self.api.admin.get(f"/v1/jobs/{self.job_id}/metrics").json()
        is_session_open = self.browser("admin session").get("/v1/keys").status_code == 200
        return keys, jobs, metrics, is_session_open


def make_scene(api: Api) -> Scene:
    ended_attempt = begin_next_attempt(api, api.submit()["id"])
    begin_next_attempt(api, ended_attempt.job_id)
    job_id = api.submit()["id"]
    attempt = begin_next_attempt(api, job_id)
    other = begin_next_attempt(api, api.submit()["id"])
    with api.services.database.write() as session:
        session.merge(other).token_hash = hash_secret("token of the other attempt")
    scene = Scene(api, job_id, attempt.id, ended_attempt.id, other.id)
    scene.secrets["attempt token"] = TOKEN
    for name, fields in KEYS.items():
        key = create_key(api, **fields)
        scene.secrets[name], scene.key_ids[name] = key["key"], key["id"]
    for name, client in (("admin", api.admin), ("viewer", scene.client("viewer"))):
        token = client.post("/v1/session/links", json={}).json()["token"]
        with api.make_client(None) as browser:
            assert browser.post("/v1/session", json={"token": token}).status_code == 204
            scene.secrets[f"{name} session"] = browser.cookies[SESSION_COOKIE]
        scene.secrets[f"{name} link"] = client.post("/v1/session/links", json={}).json()["token"]
    for name in ("revoked", "revoked admin"):
        assert api.admin.delete(f"/v1/keys/{scene.key_ids[name]}").status_code == 204
    return scene


KEYS: dict[str, dict[str, Any]] = {
    "revoked": {"role": "submitter", "owner": "old"},
    "revoked admin": {"role": "admin", "owner": "old"},
    "viewer": {"role": "viewer", "owner": "reader"},
    "submitter": {"role": "submitter", "owner": "writer"},
}
