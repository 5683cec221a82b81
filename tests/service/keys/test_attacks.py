"""Attacks on keys, sessions and tokens: what each gets, and that none changes anything."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from service.access.secret import hash_secret
from tests.service.api import Api, make_document
from tests.service.keys.scene import Scene, make_scene

JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Attack:
    """One request, or the last of several, and the answer that it gets."""

    what: str
    send: Callable[[Scene], httpx.Response]
    status: int
    problem: str
    """Last word of the problem's type."""


def authorise(value: str | bytes) -> Callable[[Scene], httpx.Response]:
    """List the jobs with an Authorization header."""
    return lambda scene: scene.api.anonymous.get("/v1/jobs", headers=[(b"Authorization", _to_bytes(value))])


def _to_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def list_jobs(secret: str) -> Callable[[Scene], httpx.Response]:
    return lambda scene: scene.client(secret).get("/v1/jobs")


def list_jobs_with_cookie(secret: str) -> Callable[[Scene], httpx.Response]:
    return lambda scene: scene.browser(secret).get("/v1/jobs")


def cancel_from_page(**headers: str) -> Callable[[Scene], httpx.Response]:
    """Cancel a job with the cookie of an admin, from a page that the browser describes by `headers`."""
    return lambda scene: scene.browser("admin session", **headers).post(f"/v1/jobs/{scene.job_id}/cancel")


def sign_in_with(secret: str, field: str) -> Callable[[Scene], httpx.Response]:
    return lambda scene: scene.api.anonymous.post("/v1/session", json={field: scene.secrets[secret]})


def sign_in_with_text(body: str) -> Callable[[Scene], httpx.Response]:
    return lambda scene: scene.api.anonymous.post("/v1/session", content=body, headers=JSON)


def create_key(sender: str, **fields: Any) -> Callable[[Scene], httpx.Response]:
    body = {"name": "mine", "role": "viewer"} | fields
    return lambda scene: _find_client(scene, sender).post("/v1/keys", json=body)


def create_link(sender: str, **fields: Any) -> Callable[[Scene], httpx.Response]:
    return lambda scene: _find_client(scene, sender).post("/v1/session/links", json=fields)


def act_on_job(sender: str, action: str) -> Callable[[Scene], httpx.Response]:
    return lambda scene: _find_client(scene, sender).post(f"/v1/jobs/{scene.job_id}/{action}")


def _find_client(scene: Scene, sender: str) -> httpx.Client:
    return scene.api.admin if sender == "admin" else scene.client(sender)


def fixate_session(scene: Scene) -> httpx.Response:
    """Put a cookie of one's own choice into a browser, wait until somebody signs in with it, and use that cookie."""
    chosen = scene.cookie("chosen-by-the-attacker")
    assert chosen.post("/v1/session", json={"key": scene.secrets["viewer"]}).status_code == 204
    return scene.cookie("chosen-by-the-attacker").get("/v1/jobs")


def keep_session_of_before(scene: Scene) -> httpx.Response:
    """Put one's own session into a browser, wait until somebody signs in there, and go on with that session."""
    own = scene.api.make_client(None)
    own.post("/v1/session", json={"key": scene.secrets["viewer"]})
    token = own.cookies["dlrm_session"]
    scene.cookie(token).post("/v1/session", json={"key": scene.secrets["submitter"]})
    return scene.cookie(token).get("/v1/jobs")


def revoke_last_admin(scene: Scene) -> httpx.Response:
    keys = scene.api.admin.get("/v1/keys").json()["items"]
    own = next(key["id"] for key in keys if key["role"] == "admin" and key["owner"] == "team")
    return scene.api.admin.delete(f"/v1/keys/{own}")


CREDENTIALS = [
    Attack("no credentials", lambda scene: scene.api.anonymous.get("/v1/jobs"), 401, "unauthenticated"),
    Attack("an unknown key", authorise(f"Bearer dlrm_{'x' * 43}"), 401, "unauthenticated"),
    Attack("an expired key", list_jobs("expired"), 401, "unauthenticated"),
    Attack("a revoked key", list_jobs("revoked"), 401, "unauthenticated"),
    Attack("a revoked admin key that makes a key", create_key("revoked admin"), 401, "unauthenticated"),
    Attack("an empty key", authorise("Bearer"), 401, "unauthenticated"),
    Attack("a key without its secret", authorise("Bearer dlrm_"), 401, "unauthenticated"),
    Attack("a key of 20,000 letters", authorise(f"Bearer dlrm_{'x' * 20_000}"), 401, "unauthenticated"),
    Attack("a key with bytes that are no text", authorise(b"Bearer dlrm_\xff\xfe\x80"), 401, "unauthenticated"),
    Attack("a key under another scheme", authorise("Basic YWRtaW46YWRtaW4="), 401, "unauthenticated"),
    Attack("a wildcard", authorise("Bearer dlrm_%"), 401, "unauthenticated"),
    Attack(
        "the hash of a key",
        lambda scene: scene.api.make_client(hash_secret(scene.secrets["submitter"])).get("/v1/jobs"),
        401,
        "unauthenticated",
    ),
    Attack(
        "a key with something behind it",
        lambda scene: scene.api.make_client(scene.secrets["submitter"] + "x").get("/v1/jobs"),
        401,
        "unauthenticated",
    ),
    Attack(
        "a key in the query",
        lambda scene: scene.api.anonymous.get("/v1/jobs", params={"access_token": scene.secrets["submitter"]}),
        401,
        "unauthenticated",
    ),
    Attack("a key as a cookie", list_jobs_with_cookie("submitter"), 401, "unauthenticated"),
    Attack("a cookie as a key", list_jobs("admin session"), 401, "unauthenticated"),
    Attack("a sign-in link as a key", list_jobs("admin link"), 401, "unauthenticated"),
    Attack("a sign-in link as a cookie", list_jobs_with_cookie("admin link"), 401, "unauthenticated"),
    Attack("the token of an attempt as a key", list_jobs("attempt token"), 401, "unauthenticated"),
]

SESSIONS = [
    Attack("a page of another site", cancel_from_page(**{"Sec-Fetch-Site": "cross-site"}), 403, "forbidden"),
    Attack("a page of another port", cancel_from_page(**{"Sec-Fetch-Site": "same-site"}), 403, "forbidden"),
    Attack("a page of no site", cancel_from_page(**{"Sec-Fetch-Site": "none"}), 403, "forbidden"),
    Attack("an old browser's page of another site", cancel_from_page(Origin="https://evil.example"), 403, "forbidden"),
    Attack("an old browser's page of another port", cancel_from_page(Origin="http://127.0.0.1:1"), 403, "forbidden"),
    Attack("an old browser's page without an origin", cancel_from_page(Origin="null"), 403, "forbidden"),
    Attack(
        "a page of another site that signs a browser in",
        lambda scene: scene.api.anonymous.post(
            "/v1/session", json={"key": scene.secrets["viewer"]}, headers={"Sec-Fetch-Site": "cross-site"}
        ),
        403,
        "forbidden",
    ),
    Attack(
        "a page of another site that signs a browser out",
        lambda scene: scene.browser("admin session", Origin="https://evil.example").delete("/v1/session"),
        403,
        "forbidden",
    ),
    Attack("a cookie that was chosen before the sign-in", fixate_session, 401, "unauthenticated"),
    Attack("a session that was there before the sign-in", keep_session_of_before, 401, "unauthenticated"),
    Attack("a session that was signed out", list_jobs_with_cookie("admin signed-out session"), 401, "unauthenticated"),
    Attack("a session of a revoked key", list_jobs_with_cookie("revoked session"), 401, "unauthenticated"),
    Attack("a session of an expired key", list_jobs_with_cookie("expired session"), 401, "unauthenticated"),
    Attack("a link that was used", sign_in_with("admin used link", "token"), 401, "unauthenticated"),
    Attack("a link of a revoked key", sign_in_with("revoked link", "token"), 401, "unauthenticated"),
    Attack("a link of an expired key", sign_in_with("expired link", "token"), 401, "unauthenticated"),
    Attack("a sign-in with a revoked key", sign_in_with("revoked", "key"), 401, "unauthenticated"),
    Attack("a sign-in with an expired key", sign_in_with("expired", "key"), 401, "unauthenticated"),
    Attack("a sign-in with a cookie", sign_in_with("admin session", "token"), 401, "unauthenticated"),
    Attack("a sign-in with a key in place of a link", sign_in_with("submitter", "token"), 401, "unauthenticated"),
    Attack("a sign-in with half a character", sign_in_with_text('{"key": "\\ud800"}'), 422, "invalid-request"),
    Attack("a sign-in with a NUL character", sign_in_with_text('{"token": "\\u0000"}'), 422, "invalid-request"),
    Attack("a sign-in with 2,000 letters", sign_in_with_text(f'{{"key": "{"x" * 2_000}"}}'), 422, "invalid-request"),
    Attack("a sign-in with a list", sign_in_with_text('{"key": ["dlrm_"]}'), 422, "invalid-request"),
    Attack("a sign-in with a wish", sign_in_with_text('{"key": "dlrm_x", "role": "admin"}'), 422, "invalid-request"),
    Attack(
        "a session that makes a link to prolong itself",
        lambda scene: scene.browser("admin session").post("/v1/session/links", json={}),
        403,
        "forbidden",
    ),
    Attack(
        "a viewer's session that makes a key",
        lambda scene: scene.browser("viewer session").post("/v1/keys", json={"name": "mine", "role": "viewer"}),
        403,
        "forbidden",
    ),
]

ROLES = [
    *(
        Attack(f"a viewer that wants to {action}", act_on_job("viewer", action), 403, "forbidden")
        for action in ("cancel", "pause", "resume")
    ),
    Attack(
        "a viewer that submits",
        lambda scene: scene.client("viewer").post("/v1/jobs", json=make_document()),
        403,
        "forbidden",
    ),
    Attack(
        "a viewer that plans",
        lambda scene: scene.client("viewer").post("/v1/plans", json=make_document()),
        403,
        "forbidden",
    ),
    Attack("a viewer that makes a key", create_key("viewer"), 403, "forbidden"),
    Attack(
        "a viewer that revokes a key",
        lambda scene: scene.client("viewer").delete(f"/v1/keys/{scene.key_ids['submitter']}"),
        403,
        "forbidden",
    ),
    Attack("a submitter that makes itself an admin", create_key("submitter", role="admin"), 403, "forbidden"),
    Attack("a submitter that makes a key of another owner", create_key("submitter", owner="team"), 403, "forbidden"),
    Attack(
        "a submitter that revokes its own key",
        lambda scene: scene.client("submitter").delete(f"/v1/keys/{scene.key_ids['submitter']}"),
        403,
        "forbidden",
    ),
    Attack(
        "a submitter that reads the audit log",
        lambda scene: scene.client("submitter").get("/v1/audit"),
        403,
        "forbidden",
    ),
    Attack("a viewer's link for a submitter", create_link("viewer", role="submitter"), 403, "forbidden"),
    Attack("a submitter's link for an admin", create_link("submitter", role="admin"), 403, "forbidden"),
    Attack("a submitter's link for another owner", create_link("submitter", owner="team"), 403, "forbidden"),
    Attack("the last admin that revokes itself", revoke_last_admin, 409, "conflict"),
    Attack(
        "a job in another owner's name",
        lambda scene: scene.client("submitter").post("/v1/jobs", json=make_document(owner="team")),
        422,
        "invalid-job",
    ),
]

TOKENS = [
    Attack(
        "the token of another attempt",
        lambda scene: scene.push(scene.other_attempt_id, "attempt-token"),
        401,
        "unauthenticated",
    ),
    Attack("no token", lambda scene: scene.push(scene.attempt_id, None), 401, "unauthenticated"),
    Attack("an empty token", lambda scene: scene.push(scene.attempt_id, ""), 401, "unauthenticated"),
    Attack("an unknown attempt", lambda scene: scene.push("att_0", "attempt-token"), 401, "unauthenticated"),
    Attack("an attempt with a NUL character", lambda scene: scene.push("%00", "attempt-token"), 422, "invalid-request"),
    Attack(
        "the token of an ended attempt",
        lambda scene: scene.push(scene.ended_attempt_id, "attempt-token"),
        410,
        "attempt-ended",
    ),
    Attack(
        "another token for an ended attempt",
        lambda scene: scene.push(scene.ended_attempt_id, "x"),
        401,
        "unauthenticated",
    ),
    Attack(
        "a key in place of a token",
        lambda scene: scene.push(scene.attempt_id, scene.secrets["submitter"]),
        401,
        "unauthenticated",
    ),
    Attack(
        "a cookie in place of a token",
        lambda scene: scene.browser("admin session").get(
            f"/v1/ingest/{scene.attempt_id}", params={"rank": 0, "stream": "metrics"}
        ),
        401,
        "unauthenticated",
    ),
]

NAMES = {
    "a control character": "a\x1b[2Jb",
    "a line break": "a\nb",
    "a line break at the end": "ab\n",
    "a NUL character": "a\0b",
    "text from right to left": "a\N{RIGHT-TO-LEFT OVERRIDE}b",
    "letters that look like others": "аdmin",  # noqa: RUF001
    "a path": "../../etc",
    "a tag": "<script>",
    "a quotation mark": "a'--",
    "64 letters": "a" * 64,
    "spaces": " admin ",
    "no letters": "",
}
"""Names that are none, by what is wrong with them."""

FIELDS = [
    *(
        Attack(f"a key whose {field} has {what}", create_key("admin", **{field: name}), 422, "invalid-request")
        for what, name in NAMES.items()
        for field in ("name", "owner")
    ),
    *(
        Attack(f"a key with the role {role!r}", create_key("admin", role=role), 422, "invalid-request")
        for role in ("ADMIN", "root", "", ["admin"], 2)
    ),
    Attack("a key with a secret of one's own", create_key("admin", key="dlrm_mine"), 422, "invalid-request"),
    Attack(
        "a key that is older than it is", create_key("admin", created_at="2020-01-01T00:00:00Z"), 422, "invalid-request"
    ),
    Attack("a key that lives for ever and a day", create_key("admin", expires_in_days=10**9), 422, "invalid-request"),
    Attack("a link for a year", create_link("admin", minutes=525_600), 422, "invalid-request"),
    Attack("a link without an end", create_link("admin", minutes=float(2**70)), 422, "invalid-request"),
    Attack(
        "an id of a key with a NUL character",
        lambda scene: scene.api.admin.delete("/v1/keys/%00"),
        422,
        "invalid-request",
    ),
    Attack(
        "an id of a key with a wildcard", lambda scene: scene.api.admin.delete("/v1/keys/key_%25"), 404, "not-found"
    ),
    Attack(
        "an id of a key of 5,000 letters",
        lambda scene: scene.api.admin.delete(f"/v1/keys/key_{'x' * 5000}"),
        404,
        "not-found",
    ),
    Attack(
        "a filter of the audit log with a NUL character",
        lambda scene: scene.api.admin.get("/v1/audit", params={"target": "\0"}),
        422,
        "invalid-request",
    ),
]

ATTACKS = [*CREDENTIALS, *SESSIONS, *ROLES, *TOKENS, *FIELDS]


@pytest.fixture(scope="module")
def scene(shared_api: Api) -> Scene:
    """Service that all attacks of this file are on: none changes it."""
    return make_scene(shared_api)


@pytest.mark.parametrize("attack", [pytest.param(attack, id=attack.what.replace(" ", "-")) for attack in ATTACKS])
def test_an_attack_gets_its_answer_and_changes_nothing(scene: Scene, attack: Attack) -> None:
    before = scene.take_state()
    response = attack.send(scene)
    assert response.status_code == attack.status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["type"] == f"urn:dlrm:problem:{attack.problem}"
    assert not [name for name, secret in scene.secrets.items() if secret in response.text]
    assert "set-cookie" not in response.headers
    assert scene.take_state() == before


def test_who_does_not_hold_a_key_is_not_told_whether_it_was_revoked(scene: Scene) -> None:
    similar = scene.secrets["revoked"][:-1] + ("A" if scene.secrets["revoked"][-1] != "A" else "B")
    unknown = scene.api.make_client(f"dlrm_{'x' * 43}").get("/v1/jobs")
    assert get_problem(scene.api.make_client(similar).get("/v1/jobs")) == get_problem(unknown)


def test_an_unknown_attempt_is_answered_as_a_wrong_token(scene: Scene) -> None:
    assert get_problem(scene.push("att_0", "x")) == get_problem(scene.push(scene.attempt_id, "x"))


def get_problem(response: httpx.Response) -> tuple[str, str]:
    return response.json()["type"], response.json()["detail"]
