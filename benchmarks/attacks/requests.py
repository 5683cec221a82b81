"""Attacks by single requests that are malformed, misleading, or not what they seem to be."""

import gzip

from benchmarks.attacks.attack import Attack, raw, repeat, request
from benchmarks.attacks.sending import send
from benchmarks.attacks.target import Target, make_document

KEY_LINE = b"authorization: Bearer %KEY%\r\n"


def _head(method: bytes, path: bytes, *lines: bytes) -> bytes:
    return b"%b %b HTTP/1.1\r\nhost: x\r\n%b\r\n" % (method, path, b"".join(line + b"\r\n" for line in lines))


def _text(what: str, body: bytes, path: str = "/v1/jobs", **headers: str) -> Attack:
    return request(what, "POST", path, "attacker", body, **headers)


def _data(what: str, *patterns: str) -> Attack:
    return request(what, "POST", "/v1/jobs", body=make_document("mine", data={"train": list(patterns)}))


def _read_state(target: Target) -> int:
    path = f"{target.directory}/state/service.sqlite3"
    return send(target, "POST", "/v1/jobs", target.keys["attacker"], make_document("mine", data={"train": [path]}))


PATHS = [
    request("a NUL character in a path", "GET", "/v1/jobs/%00"),
    request("a NUL character in a query", "GET", "/v1/jobs?name=%00"),
    request("a NUL character in a document", "POST", "/v1/jobs", body=make_document("a\0b")),
    raw("a NUL byte in a header", _head(b"GET", b"/healthz", b"x-y: a\0b")),
    request("a path that is no UTF-8", "GET", "/v1/jobs/%ff"),
    raw("a path that leads out of the static files", _head(b"GET", b"/static/../../../../etc/passwd")),
    request("the same in escapes", "GET", "/static/%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd", None),
    _data("data outside of the data roots", "../../../../etc/passwd"),
    _data("data by an absolute path", "/etc/passwd"),
    _data("data by a link that leads out", "link.tsv"),
    _data("data by a link to its own directory", "loop/" * 30 + "day_0.tsv"),
    Attack("the service's own database as data", lambda target: repeat(target, _read_state)),
    raw(
        "a redirect to the host of the request",
        b"GET /v1/jobs/ HTTP/1.1\r\nhost: evil.example\r\n" + KEY_LINE + b"\r\n",
        key="attacker",
    ),
    request("a forged line of the log in a path", "GET", "/x%0a%7b%22event%22%3a%22forged%22%7d%1b[31m", None),
    request("a forged line of the log in a request id", "GET", "/healthz", None, x_request_id='"}{"event":"forged'),
    request("another address in X-Forwarded-For", "GET", "/v1/jobs", None, x_forwarded_for="127.0.0.1"),
]

JSON_BODIES = [
    _text("a JSON key that comes twice", b'{"name": "a", "name": "b"}'),
    _text("a number that is none", b'{"priority": NaN}'),
    _text("a number of 300,000 digits", b'{"priority": 1' + b"0" * 300_000 + b"}"),
    _text("half a character", b'{"name": "\\ud800"}'),
    _text("JSON in UTF-16", '{"name": "a"}'.encode("utf-16")),
    _text("JSON nested 500,000 deep", b"[" * 500_000 + b"]" * 500_000),
    _text("objects nested 150,000 deep", b'{"a":' * 150_000 + b"1" + b"}" * 150_000),
    _text("a body with gzip, 200 MB when unpacked", gzip.compress(b" " * 200_000_000), content_encoding="gzip"),
    _text("a body that is a form", b"name=a", content_type="application/x-www-form-urlencoded"),
    request(
        "a document of 80,000 names that are none", "POST", "/v1/jobs", body={f"n{n:05}": 0 for n in range(80_000)}
    ),
    request(
        "a document of 10,000 patterns",
        "POST",
        "/v1/jobs",
        body=make_document("mine", data={"train": [f"no-{n}" for n in range(10_000)]}),
    ),
    request(
        "a plan of 10,000 patterns",
        "POST",
        "/v1/plans",
        body=make_document("mine", data={"train": [f"many/{n % 2000}.tsv" for n in range(10_000)]}),
    ),
    _data("patterns that match 2,000 files in 100 ways", *(f"many/*{n}*.tsv" for n in range(100))),
    _data("a pattern that searches a circle of links", "**/**/**/**/*.csv"),
    request(
        "labels of 1 MB",
        "POST",
        "/v1/jobs",
        body=make_document("mine", labels={f"l{n}": "x" * 40 for n in range(18_000)}),
    ),
]

HEADS = [
    raw(
        "two lengths of one body",
        _head(
            b"POST",
            b"/v1/jobs",
            KEY_LINE[:-2],
            b"content-type: application/json",
            b"content-length: 2",
            b"transfer-encoding: chunked",
        ),
        b"0\r\n\r\n",
        key="attacker",
    ),
    raw(
        "two requests that differ in the end of the first",
        _head(b"POST", b"/healthz", b"content-length: 5", b"content-length: 50"),
        b"GET /v1/keys HTTP/1.1\r\n\r\n",
    ),
    raw("a negative length", _head(b"POST", b"/v1/session", b"content-type: application/json", b"content-length: -1")),
    raw(
        "a length of 10^30 bytes",
        _head(b"POST", b"/v1/jobs", KEY_LINE[:-2], b"content-type: application/json", b"content-length: 1" + b"0" * 30),
        key="attacker",
    ),
    raw(
        "two keys in one request", _head(b"GET", b"/v1/jobs", KEY_LINE[:-2], b"authorization: Bearer x"), key="attacker"
    ),
    raw("a header without an end, 1 MB", b"GET /healthz HTTP/1.1\r\nx: ", b"x" * 2**20),
    raw("100,000 headers", b"GET /healthz HTTP/1.1\r\nhost: x\r\n", b"x: y\r\n" * 100_000, b"\r\n"),
    raw("a first line of 1 MB", b"GET /", b"x" * 2**20, b" HTTP/1.1\r\n\r\n"),
    raw("no HTTP: a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    raw("no HTTP/1: the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    raw("a method of 4,000 letters", _head(b"A" * 4000, b"/healthz")),
    raw(
        "a web socket",
        _head(
            b"GET",
            b"/v1/jobs",
            b"upgrade: websocket",
            b"connection: upgrade",
            b"sec-websocket-key: eA==",
            b"sec-websocket-version: 13",
        ),
    ),
    raw("a cookie of 7,000 names", _head(b"GET", b"/v1/jobs", b"cookie: " + b"a;" * 7000)),
    raw(
        "a static file in 1,400 ranges",
        _head(
            b"GET", b"/static/style.css", b"range: bytes=" + b",".join(b"%d-%d" % (2 * n, 2 * n) for n in range(1400))
        ),
    ),
    raw(
        "a query of 3,200 names that are none", _head(b"GET", b"/healthz?" + b"&".join(b"%x" % n for n in range(3200)))
    ),
    raw(
        "the same with names that are nearly right",
        _head(b"GET", b"/v1/jobs?" + b"&".join(b"creted_%x" % n for n in range(1200)), KEY_LINE[:-2]),
        key="attacker",
    ),
    raw(
        "1,200 labels to look for",
        _head(b"GET", b"/v1/jobs?" + b"&".join(b"label=a:%d" % n for n in range(1200)), KEY_LINE[:-2]),
        key="attacker",
    ),
    request("a page after 10^30", "GET", f"/v1/jobs/{{job}}/events?cursor={10**30}"),
    request("a text to look for that is all wildcards", "GET", f"/v1/jobs?q={'%25_' * 30}"),
]

REQUESTS = [*PATHS, *JSON_BODIES, *HEADS]
