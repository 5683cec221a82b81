"""Attacks with wrong keys, sessions and tokens, or with too little right."""

from collections.abc import Iterator

from benchmarks.attacks.attack import Attack, one_of_each, repeat, request
from benchmarks.attacks.sending import send
from benchmarks.attacks.target import Target, make_document

NO_LINES = {"rank": 0, "stream": "metrics", "first_seq": 1, "lines": []}
VERBS = [
    *(("GET", part) for part in ("", "/events", "/attempts", "/metrics", "/logs", "/checkpoints")),
    *(("POST", part) for part in ("/cancel", "/pause", "/resume", "/hold", "/release", "/restart")),
    ("DELETE", ""),
]


def _bearer(what: str, value: str) -> Attack:
    return request(what, "GET", "/v1/jobs", None, authorization=value)


def _push(target: Target, number: int, token: str | None) -> int:
    return send(target, "POST", target.ingest_paths[number], token, NO_LINES)


def _use_every_verb(target: Target) -> Iterator[int]:
    for method, part in VERBS:
        yield send(target, method, f"/v1/jobs/{target.victims_job}{part}", target.keys["attacker"])


def _use_every_verb_as_viewer(target: Target) -> Iterator[int]:
    for method, part in VERBS:
        if method != "GET":
            yield send(target, method, f"/v1/jobs/{target.jobs[0]}{part}", target.keys["viewer"])


def _send_from_page(target: Target, **headers: str) -> int:
    path = f"/v1/jobs/{target.victims_job}/cancel"
    return send(target, "POST", path, cookie=target.cookie, **headers)


CREDENTIALS = [
    request("no key", "GET", "/v1/jobs", None),
    _bearer("an unknown key", f"Bearer dlrm_{'x' * 43}"),
    _bearer("a key that is a wildcard", "Bearer dlrm_%"),
    _bearer("a key of 12,000 letters", f"Bearer dlrm_{'x' * 12_000}"),
    _bearer("another scheme", "Basic YWRtaW46YWRtaW4="),
    request("an expired key", "GET", "/v1/jobs", "expired"),
    request("a revoked key that makes a key", "POST", "/v1/keys", "revoked", {"name": "mine", "role": "admin"}),
    Attack(
        "a key in the query",
        lambda target: repeat(
            target, lambda target: send(target, "GET", f"/v1/jobs?access_token={target.keys['victim']}")
        ),
    ),
    Attack(
        "the token of an attempt as a key",
        lambda target: repeat(target, lambda target: send(target, "GET", "/v1/jobs", target.tokens[0])),
    ),
    request("a made-up session", "GET", "/v1/jobs", None, cookie=f"dlrm_session={'x' * 43}"),
    Attack(
        "a page of another site that cancels a job with a session",
        lambda target: repeat(target, lambda target: _send_from_page(target, sec_fetch_site="cross-site")),
    ),
    Attack(
        "an old browser's page of another site",
        lambda target: repeat(target, lambda target: _send_from_page(target, origin="https://evil.example")),
    ),
    one_of_each("another's job by each of 13 verbs", _use_every_verb),
    one_of_each("a viewer that changes a job by each of 7 verbs", _use_every_verb_as_viewer),
    request("a viewer that submits", "POST", "/v1/jobs", "viewer", make_document("mine")),
    request("a submitter that makes itself an admin", "POST", "/v1/keys", body={"name": "mine", "role": "admin"}),
    request("a submitter's sign-in link for an admin", "POST", "/v1/session/links", body={"role": "admin"}),
    request("a submitter that reads the audit log", "GET", "/v1/audit"),
    request("a job in another owner's name", "POST", "/v1/jobs", body=make_document("mine", owner="victim")),
    Attack(
        "another attempt's token",
        lambda target: repeat(target, lambda target: _push(target, 0, target.tokens[1])),
    ),
    Attack(
        "the token of an attempt that was cancelled",
        lambda target: repeat(target, lambda target: _push(target, -1, target.tokens[-1])),
    ),
    Attack(
        "a key in place of an attempt's token",
        lambda target: repeat(target, lambda target: _push(target, 0, target.keys["attacker"])),
    ),
]
