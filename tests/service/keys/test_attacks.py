"""Attacks on keys, sessions and tokens: what each gets, and that none changes anything."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from service.access.secret import hash_secret
from tests.service.api import Api, make_document
from tests.service.keys.scene import Scene, make_scene
from tests.service.reports.attempts import TOKEN

JSON = {"Content-Type": "application/json"}


Send = Callable[[Scene], httpx.Response]
"""One request, or the last of several, of an attacker."""


def authorise(value: str | bytes) -> Send:
    """List the jobs with an Authorization header."""
    return lambda scene: scene.api.anonymous.get("/v1/jobs", headers=[(b"Authorization", _to_bytes(value))])


def _to_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def list_jobs(secret: str) -> Send:
    return lambda scene: scene.client(secret).get("/v1/jobs")


def list_jobs_with_cookie(secret: str) -> Send:
    return lambda scene: scene.browser(secret).get("/v1/jobs")


def cancel_from_page(**headers: str) -> Send:
    """Cancel a job with the cookie of an admin, from a page that the browser describes by `headers`."""
    return lambda scene: scene.browser("admin session", **headers).post(f"/v1/jobs/{scene.job_id}/cancel")


def sign_in_with(secret: str, field: str) -> Send:
    return lambda scene: scene.api.anonymous.post("/v1/session", json={field: scene.secrets[secret]})


def sign_in_with_text(body: str) -> Send:
    return lambda scene: scene.api.anonymous.post("/v1/session", content=body, headers=JSON)


def create_key(sender: str, **fields: Any) -> Send:
    body = {"name": "mine", "role": "viewer"} | fields
    return lambda scene: _find_client(scene, sender).post("/v1/keys", json=body)


def create_link(sender: str, **fields: Any) -> Send:
    return lambda scene: _find_client(scene, sender).post("/v1/session/links", json=fields)


def _find_client(scene: Scene, sender: str) -> httpx.Client:
    return scene.api.admin if sender == "admin" else scene.client(sender)


def fixate_session(scene: Scene) -> httpx.Response:
    """Put a cookie of one's own choice into a browser, wait until somebody signs in with it, and use that cookie."""
    chosen = scene.cookie("chosen-by-the-attacker")
    assert chosen.post("/v1/session", json={"key": scene.secrets["viewer"]}).status_code == 204
    return scene.cookie("chosen-by-the-attacker").get("/v1/jobs")


REFUSED: dict[tuple[int, str], dict[str, Send]] = {
    (401, "unauthenticated"): {
        "an empty key": authorise("Bearer"),
        "a key without its secret": authorise("Bearer dlrm_"),
        "a key of 20,000 letters": authorise(f"Bearer dlrm_{'x' * 20_000}"),
        "a key with bytes that are no text": authorise(b"Bearer dlrm_\xff\xfe\x80"),
        "a key under another scheme": authorise("Basic YWRtaW46YWRtaW4="),
        "a wildcard": authorise("Bearer dlrm_%"),
        "a revoked admin key that makes a key": create_key("revoked admin"),
        "the hash of a key": lambda scene: scene.list_jobs(hash_secret(scene.secrets["submitter"])),
        "a key with something behind it": lambda scene: scene.list_jobs(scene.secrets["submitter"] + "x"),
        "a key in the query": lambda scene: scene.api.anonymous.get(
            "/v1/jobs", params={"access_token": scene.secrets["submitter"]}
        ),
        "a key as a cookie": list_jobs_with_cookie("submitter"),
        "a cookie as a key": list_jobs("admin session"),
        "a sign-in link as a key": list_jobs("admin link"),
        "a sign-in link as a cookie": list_jobs_with_cookie("admin link"),
        "the token of an attempt as a key": list_jobs("attempt token"),
        "a cookie that was chosen before the sign-in": fixate_session,
        "a sign-in with a cookie": sign_in_with("admin session", "token"),
        "a sign-in with a key in place of a link": sign_in_with("submitter", "token"),
        "the token of another attempt": lambda scene: scene.push(scene.other_attempt_id, TOKEN),
        "no token": lambda scene: scene.push(scene.attempt_id, None),
        "an empty token": lambda scene: scene.push(scene.attempt_id, ""),
        "an unknown attempt": lambda scene: scene.push("att_0", TOKEN),
        "another token for an ended attempt": lambda scene: scene.push(scene.ended_attempt_id, "x"),
        "a key in place of a token": lambda scene: scene.push(scene.attempt_id, scene.secrets["submitter"]),
        "a cookie in place of a token": lambda scene: scene.browser("admin session").get(
            f"/v1/ingest/{scene.attempt_id}", params={"rank": 0, "stream": "metrics"}
        ),
    },
    (403, "forbidden"): {
        "a page of another site": cancel_from_page(**{"Sec-Fetch-Site": "cross-site"}),
        "a page of another port": cancel_from_page(**{"Sec-Fetch-Site": "same-site"}),
        "a page of no site": cancel_from_page(**{"Sec-Fetch-Site": "none"}),
        "an old browser's page of another site": cancel_from_page(Origin="https://evil.example"),
        "an old browser's page of another port": cancel_from_page(Origin="http://127.0.0.1:1"),
        "an old browser's page without an origin": cancel_from_page(Origin="null"),
        "a page of another site that signs a browser in": lambda scene: scene.api.anonymous.post(
            "/v1/session", json={"key": scene.secrets["viewer"]}, headers={"Sec-Fetch-Site": "cross-site"}
        ),
        "a page of another site that signs a browser out": lambda scene: scene.browser(
            "admin session", Origin="https://evil.example"
        ).delete("/v1/session"),
        "a session that makes a link to prolong itself": lambda scene: scene.browser("admin session").post(
            "/v1/session/links", json={}
        ),
        "a viewer's session that makes a key": lambda scene: scene.browser("viewer session").post(
            "/v1/keys", json={"name": "mine", "role": "viewer"}
        ),
        "a viewer's link for a submitter": create_link("viewer", role="submitter"),
        "a submitter's link for an admin": create_link("submitter", role="admin"),
        "a submitter's link for another owner": create_link("submitter", owner="team"),
    },
    (404, "not-found"): {
        "an id of a key with a wildcard": lambda scene: scene.api.admin.delete("/v1/keys/key_%25"),
        "an id of a key of 5,000 letters": lambda scene: scene.api.admin.delete(f"/v1/keys/key_{'x' * 5000}"),
    },
    (410, "attempt-ended"): {"the token of an ended attempt": lambda scene: scene.push(scene.ended_attempt_id, TOKEN)},
    (422, "invalid-job"): {
        "a job in another owner's name": lambda scene: scene.client("submitter").post(
            "/v1/jobs", json=make_document(owner="team")
        ),
    },
    (422, "invalid-request"): {
        "a sign-in with half a character": sign_in_with_text('{"key": "\\ud800"}'),
        "a sign-in with a NUL character": sign_in_with_text('{"token": "\\u0000"}'),
        "a sign-in with a wish": sign_in_with_text('{"key": "dlrm_x", "role": "admin"}'),
        "an attempt with a NUL character": lambda scene: scene.push("%00", TOKEN),
        "a key with a secret of one's own": create_key("admin", key="dlrm_mine"),
        "a link without an end": create_link("admin", minutes=float(2**70)),
    },
}
"""Attacks by what they are, and by the status and the type of the problem that each is answered with."""

NAMES = {
    "a control character": "a\x1b[2Jb",
    "a line break": "a\nb",
    "a NUL character": "a\0b",
    "text from right to left": "a\N{RIGHT-TO-LEFT OVERRIDE}b",
    "letters that look like others": "аdmin",  # noqa: RUF001
    "a path": "../../etc",
    "a tag": "<script>",
    "a quotation mark": "a'--",
    "spaces": " admin ",
}
"""Names that are none, by what is wrong with them."""

ATTACKS = [
    *((what, send, *answer) for answer, attacks in REFUSED.items() for what, send in attacks.items()),
    *(
        (f"a key whose name has {what}", create_key("admin", name=name), 422, "invalid-request")
        for what, name in NAMES.items()
    ),
]


@pytest.fixture(scope="module")
def scene(shared_api: Api) -> Scene:
    """Service that all attacks of this file are on: none changes it."""
    return make_scene(shared_api)


@pytest.mark.parametrize(
    ("send", "status", "problem"), [pytest.param(*rest, id=what.replace(" ", "-")) for what, *rest in ATTACKS]
)
def test_an_attack_gets_its_answer_and_changes_nothing(scene: Scene, send: Send, status: int, problem: str) -> None:
    before = scene.take_state()
    response = send(scene)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["type"] == f"urn:dlrm:problem:{problem}"
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
