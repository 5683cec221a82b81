"""Attacks by bodies: too large, half-sent, or small ones that become large when they are read."""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from http import HTTPStatus

from benchmarks.attacks.attack import Attack
from benchmarks.attacks.sending import (
    connect,
    describe,
    make_json_head,
    read_status,
    send,
    send_at_once,
    send_bytes,
)
from benchmarks.attacks.target import NUM_JOBS, Target, make_document
from benchmarks.service_load import make_push, make_step_line, wait_for
from dlrm.record import EventReport
from service.http.request_body import BodyLimits
from tests.service.raw import make_head

INGEST_BYTES = BodyLimits.max_ingest_bytes
JOB_BYTES = BodyLimits.max_bytes
TOO_LARGE_BYTES = 2**24
LINES_OF_PUSH = 200
NUM_PUSHES = 5
LONG_TEXT = "x" * 16_000
NUM_HALF = 20
HOLD_SECONDS = 3.0
WAIT_SECONDS = 0.2
PART = b" " * 2**16


def _send_halves(num_bytes: int, num_tokens: int) -> Callable[[Target], str]:
    """Make the function that sends all but the last part of large bodies, with the tokens of as many attempts."""

    def run(target: Target) -> str:
        with ExitStack() as stack:
            connections = [stack.enter_context(connect(target)) for _ in range(NUM_HALF)]
            for number, connection in enumerate(connections):
                turn = number % max(1, num_tokens)
                token = target.tokens[turn] if num_tokens else "x"
                connection.settimeout(HOLD_SECONDS)
                with suppress(OSError):
                    connection.sendall(make_json_head(target.ingest_paths[turn], token, num_bytes))
                    for _ in range(num_bytes // len(PART) - 1):
                        connection.sendall(PART)
            time.sleep(HOLD_SECONDS)
            for connection in connections:
                connection.settimeout(WAIT_SECONDS)
            return describe(read_status(connection) for connection in connections)

    return run


def _push_at_once(body: Callable[[int], bytes], number: int) -> Callable[[Target], str]:
    """Make the function that pushes bodies at once, each with the token of another attempt."""

    def run(target: Target) -> str:
        bodies = [body(rank) for rank in range(number)]

        def act(turn: int) -> int:
            job = turn % NUM_JOBS
            return send(target, "POST", target.ingest_paths[job], target.tokens[job], bodies[turn])

        return describe(send_at_once(number, act).elements())

    return run


def _submit_at_once(body: bytes, number: int, path: str = "/v1/jobs") -> Callable[[Target], str]:
    def run(target: Target) -> str:
        keys = [target.keys["attacker"], target.keys["second attacker"]]
        return describe(send_at_once(number, lambda turn: send(target, "POST", path, keys[turn % 2], body)).elements())

    return run


def _fill_up(prefix: bytes, item: bytes, suffix: bytes, num_bytes: int) -> bytes:
    """Repeat `item` between `prefix` and `suffix` until there are nearly `num_bytes`."""
    number = (num_bytes - len(prefix) - len(suffix)) // (len(item) + 1)
    return prefix + b",".join([item] * number) + suffix


def _make_lists(rank: int) -> bytes:
    return _fill_up(b'{"rank":%d,"lines":[' % rank, b"[]", b"]}", INGEST_BYTES)


def _make_wide_text(rank: int) -> bytes:
    """Make a body with one character that makes each of its characters take four bytes once it is decoded."""
    return _fill_up(b'{"rank":%d,"lines":["\xf0\x9f\x98\x80",' % rank, b'"' + b"x" * 10_000 + b'"', b"]}", INGEST_BYTES)


def _make_long_push(rank: int) -> bytes:
    return make_push(1 + rank % 7, 1, 5_000)


def _make_full_push(rank: int) -> bytes:
    """Make a push of as many lines as there may be, each of 3.5 kB."""
    gsnr = {f"layer-{number:05}": 0.1 for number in range(130)}
    lines = [json.dumps(json.loads(make_step_line(seq)) | {"gsnr": gsnr}) for seq in range(1, 1001)]
    return json.dumps({"rank": 1 + rank % 7, "stream": "metrics", "first_seq": 1, "lines": lines}).encode()


def _read_large_events(target: Target) -> str:
    """Push events that have 16 kB each, and read them at once."""

    def make_line(seq: int) -> str:
        event = EventReport(seq=seq, time=time.time(), name="note", message="m", details={"text": LONG_TEXT})
        return event.model_dump_json()

    pushed = _push_lines(target, 0, "events", make_line)
    return f"{pushed}, then {_read_at_once(target, 20, f'/v1/jobs/{target.jobs[0]}/events?limit=1000')}"


def _read_large_curve(target: Target) -> str:
    """Push steps that have 16 kB each, and read them at once."""
    gsnr = {f"layer-{number:05}": 0.1 for number in range(700)}

    def make_line(seq: int) -> str:
        return json.dumps(json.loads(make_step_line(seq)) | {"gsnr": gsnr})

    pushed = _push_lines(target, 3, "metrics", make_line)
    return f"{pushed}, then {_read_at_once(target, 6, f'/v1/jobs/{target.jobs[3]}/metrics?limit=10000')}"


def _push_lines(target: Target, job: int, stream: str, make_line: Callable[[int], str]) -> str:
    statuses: list[int] = []
    for first in range(1, NUM_PUSHES * LINES_OF_PUSH, LINES_OF_PUSH):
        lines = [make_line(seq) for seq in range(first, first + LINES_OF_PUSH)]
        body = {"rank": 7, "stream": stream, "first_seq": first, "lines": lines}
        statuses.append(send(target, "POST", target.ingest_paths[job], target.tokens[job], body))
    return describe(statuses)


def _read_at_once(target: Target, number: int, path: str) -> str:
    return describe(send_at_once(number, lambda _: send(target, "GET", path, target.keys["attacker"])).elements())


def _send_too_much(target: Target) -> str:
    """Send chunks without an end."""
    head = make_head(
        "POST", "/v1/jobs", target.keys["attacker"], content_type="application/json", transfer_encoding="chunked"
    )
    parts = [b"10000\r\n" + PART + b"\r\n"] * 1000
    return describe(send_bytes(target, head, *parts) for _ in range(10))


def _send_cut_off(target: Target) -> str:
    """Send bodies shorter than announced, over connections that are closed then."""
    body = json.dumps(make_document("cut")).encode()
    for _ in range(500):
        with connect(target) as connection:
            connection.sendall(make_json_head("/v1/jobs", target.keys["attacker"], len(body) + 1) + body)
    with target.open_client(target.keys["victim"]) as client:
        wait_for(lambda: client.get("/v1/jobs?name=cut").status_code == HTTPStatus.OK)
        jobs = client.get("/v1/jobs?name=cut").json()["items"]
    return f"no answer, {len(jobs)} jobs"


UNKNOWN = json.dumps({f"n{number:05}": 0 for number in range(80_000)}).encode()
LISTS = _fill_up(b'{"name":[', b"[]", b"]}", JOB_BYTES)
TEXTS = _fill_up(b'{"name":[', b'""', b"]}", JOB_BYTES)
NULS = _fill_up(b'{"name":[', b'"\\u0000"', b"]}", JOB_BYTES)
PATTERNS = json.dumps(make_document("mine", data={"train": [f"no-{number}" for number in range(10_000)]})).encode()
MATCHES = json.dumps(make_document("mine", data={"train": [f"many/*{n}*.tsv" for n in range(100)]})).encode()
DEEP = b"[" * (JOB_BYTES // 2) + b"]" * (JOB_BYTES // 2)

BODIES = [
    Attack("20 half-sent bodies of 16 MB, without a key", _send_halves(TOO_LARGE_BYTES, 0)),
    Attack("20 half-sent bodies of 16 MB, with an attempt's token", _send_halves(TOO_LARGE_BYTES, 1)),
    Attack("20 half-sent bodies of 4 MB, with an attempt's token", _send_halves(INGEST_BYTES, 1)),
    Attack("20 half-sent bodies of 4 MB, with four attempts' tokens", _send_halves(INGEST_BYTES, 4)),
    Attack("a body in chunks without an end", _send_too_much),
    Attack("500 submissions that are cut off", _send_cut_off),
    Attack("8 pushes of 4 MB of empty lists", _push_at_once(_make_lists, 8)),
    Attack("8 pushes of 4 MB of text with one wide character", _push_at_once(_make_wide_text, 8)),
    Attack("8 pushes of 5,000 lines", _push_at_once(_make_long_push, 8)),
    Attack("8 pushes of 1,000 lines of 3.5 kB", _push_at_once(_make_full_push, 8)),
    Attack("events of 16 kB each, 1,000 of them read 20 times at once", _read_large_events),
    Attack("steps of 16 kB each, 1,000 of them read 6 times at once", _read_large_curve),
    Attack("100 documents of 350,000 empty lists", _submit_at_once(LISTS, 100)),
    Attack("100 documents of 350,000 empty texts", _submit_at_once(TEXTS, 100)),
    Attack("20 documents of 110,000 NUL characters", _submit_at_once(NULS, 20)),
    Attack("20 documents of 80,000 names that are none", _submit_at_once(UNKNOWN, 20)),
    Attack("100 documents nested 500,000 deep", _submit_at_once(DEEP, 100)),
    Attack("50 documents of 10,000 patterns", _submit_at_once(PATTERNS, 50)),
    Attack("10 documents of patterns that match 2,000 files in 100 ways", _submit_at_once(MATCHES, 10)),
]
