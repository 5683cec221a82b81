"""Attacks by many requests: guesses of keys, and requests that cost much."""

from collections.abc import Callable
from dataclasses import replace

from benchmarks.attacks.attack import Attack, fill
from benchmarks.attacks.sending import describe, send, send_at_once
from benchmarks.attacks.target import HOST, Target, make_document


def _flood(number: int, method: str, path: str, key: str | None, body: object = None) -> Callable[[Target], str]:
    """Make the function that sends the same request again and again from MANY connections."""

    def run(target: Target) -> str:
        secret = target.keys[key] if key else None
        filled = fill(path, target)
        return describe(send_at_once(number, lambda _: send(target, method, filled, secret, body)).elements())

    return run


def _guess_keys(target: Target) -> str:
    """Guess keys from the address of the other client."""
    target = replace(target, source=HOST)
    return describe(send_at_once(2000, lambda turn: send(target, "GET", "/v1/jobs", f"dlrm_{turn:043}")).elements())


def _guess_from_everywhere(target: Target) -> str:
    """Guess keys from an address of its own each."""

    def act(turn: int) -> int:
        source = f"127.2.{turn // 250}.{1 + turn % 250}"
        return send(replace(target, source=source), "GET", "/v1/jobs", f"dlrm_{turn:043}")

    return describe(send_at_once(2000, act).elements())


def _guess_at_sign_in(target: Target) -> str:
    def act(turn: int) -> int:
        return send(target, "POST", "/v1/session", body={"key": f"dlrm_{turn:043}"})

    return describe(send_at_once(1000, act).elements())


def _plan_at_once(target: Target) -> str:
    def act(turn: int) -> int:
        document = make_document("mine", batch={"global_size": 512 * (turn + 1)})
        return send(target, "POST", "/v1/plans", target.keys["attacker"], document)

    return describe(send_at_once(30, act).elements())


def _submit_many(target: Target) -> str:
    def act(turn: int) -> int:
        document = make_document(f"many-{turn}", resources={"workers_per_node": 900, "memory": "900GiB"})
        document["batch"] = {"global_size": 900}
        return send(target, "POST", "/v1/jobs", target.keys["attacker"], document)

    return describe(send_at_once(500, act).elements())


MANY_NAMES = "&".join(f"{number:x}" for number in range(3200))
NEAR_NAMES = "&".join(f"creted_{number:x}" for number in range(1200))
MANY_LABELS = "&".join(f"label=a:{number}" for number in range(1200))
FLOODS = [
    Attack("2,000 wrong keys from the address of the other client", _guess_keys),
    Attack("2,000 wrong keys from as many addresses", _guess_from_everywhere),
    Attack("1,000 wrong sign-ins", _guess_at_sign_in),
    Attack("1,000 requests of one key", _flood(1000, "GET", "/v1/jobs/{job}", "attacker")),
    Attack("200 requests for /readyz without a key", _flood(200, "GET", "/readyz", None)),
    Attack("1,000 requests for pages without a key", _flood(1000, "GET", "/", None)),
    Attack("500 requests for the OpenAPI document without a key", _flood(500, "GET", "/openapi.json", None)),
    Attack(
        "100 queries of 3,200 names that are none, without a key", _flood(100, "GET", f"/healthz?{MANY_NAMES}", None)
    ),
    Attack(
        "100 queries of 1,200 names that are nearly right", _flood(100, "GET", f"/v1/jobs?{NEAR_NAMES}", "attacker")
    ),
    Attack("20 requests with 1,200 labels to look for", _flood(20, "GET", f"/v1/jobs?{MANY_LABELS}", "attacker")),
    Attack("40 curves read at once", _flood(40, "GET", "/v1/jobs/{job}/metrics?limit=10000", "attacker")),
    Attack(
        "200 logs read at once",
        _flood(200, "GET", "/v1/jobs/{job}/logs?limit_bytes=1048576&tail_lines=100000", "attacker"),
    ),
    Attack("30 plans at once", _plan_at_once),
    Attack("500 jobs submitted at once", _submit_many),
    Attack("200 lists of jobs at once", _flood(200, "GET", "/v1/jobs?limit=200&q=a", "attacker")),
]
