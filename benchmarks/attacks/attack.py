"""An attack: what it is, and the function that carries it out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.attacks.sending import describe, send, send_bytes
from benchmarks.attacks.target import Target

REPEATS = 20
"""Number of times that the request of an attack of one request is sent, one after the other."""


@dataclass(frozen=True)
class Attack:
    """One way to harm a service, or to get what one must not have."""

    what: str
    run: Callable[[Target], str]
    """Function that carries the attack out, and returns the answer in few words."""


def request(
    what: str,
    method: str,
    path: str,
    key: str | None = "attacker",
    body: Any = None,
    **headers: str,
) -> Attack:
    """Make the attack of one request. key: name of a key of the target. path: may contain {job}, {victim}, {ingest}."""

    def act(target: Target) -> int:
        return send(target, method, fill(path, target), target.keys[key] if key else None, body, **headers)

    return Attack(what, lambda target: repeat(target, act))


def raw(what: str, *parts: bytes, key: str | None = None) -> Attack:
    """Make the attack of some bytes. key: name of a key of the target that stands for %KEY% in them."""

    def act(target: Target) -> int:
        secret = target.keys[key].encode() if key else b""
        return send_bytes(target, *(part.replace(b"%KEY%", secret) for part in parts))

    return Attack(what, lambda target: repeat(target, act))


def repeat(target: Target, act: Callable[[Target], int]) -> str:
    return describe(act(target) for _ in range(REPEATS))


def one_of_each(what: str, list_statuses: Callable[[Target], Iterable[int]]) -> Attack:
    """Make the attack of several requests, which are sent once each."""
    return Attack(what, lambda target: describe(list_statuses(target)))


def fill(path: str, target: Target) -> str:
    return path.format(job=target.jobs[0], victim=target.victims_job, ingest=target.ingest_paths[0])
