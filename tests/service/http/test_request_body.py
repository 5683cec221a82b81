"""Bodies of requests: which are read, how far, and what becomes of those that never end."""

import json

import httpx

from service.http.connections import ConnectionLimits
from service.http.request_body import BodyLimits
from tests.patience import wait_until
from tests.service.api import Api, make_document
from tests.service.http.server import make_app, serve_app
from tests.service.raw import connect, count_requests, get_key, make_head

JSON = {"content-type": "application/json"}


def test_a_request_that_is_cut_off_is_not_carried_out(api: Api) -> None:
    body = json.dumps(make_document()).encode()
    key = get_key(api.submitter.headers)
    for length in (len(body) + 1, 2 * len(body)):
        with connect(api.url) as connection:
            head = make_head("POST", "/v1/jobs", key, content_type="application/json", content_length=str(length))
            connection.send(head, body)
    wait_until(lambda: count_requests(api, "POST") == 2)
    assert api.viewer.get("/v1/jobs").json()["items"] == []


def test_a_body_in_chunks_that_is_cut_off_is_not_carried_out(api: Api) -> None:
    body = json.dumps(make_document()).encode()
    head = make_head(
        "POST", "/v1/jobs", get_key(api.submitter.headers), content_type="application/json", transfer_encoding="chunked"
    )
    with connect(api.url) as connection:
        connection.send(head, b"%x\r\n" % len(body), body, b"\r\n")
    wait_until(lambda: count_requests(api, "POST") == 1)
    assert api.viewer.get("/v1/jobs").json()["items"] == []


def test_a_body_that_comes_too_slowly_is_refused() -> None:
    limits = BodyLimits(start_seconds=0.2, bytes_per_second=2**20)
    with serve_app(make_app(limits), ConnectionLimits()) as url, connect(url) as connection:
        connection.send(make_head("POST", "/v1/size", content_type="application/json", content_length="100"), b"[1")
        answer = connection.read_answer()
    assert answer.status == 408
    assert answer.problem["type"] == "urn:dlrm:problem:slow-body"
    assert "only 2 bytes" in answer.problem["detail"]


def test_a_large_body_has_more_time_the_more_of_it_has_come() -> None:
    limits = BodyLimits(start_seconds=0.0, bytes_per_second=1)
    body = b" " * 2**19
    with serve_app(make_app(limits), ConnectionLimits()) as url, connect(url) as connection:
        head = make_head("POST", "/v1/size", content_type="application/json", content_length=str(len(body)))
        connection.send(head, body)
        assert connection.read_answer().body == str(len(body)).encode()


def test_a_sender_that_has_used_its_share_waits_and_is_then_refused() -> None:
    limits = BodyLimits(max_bytes=100, max_ingest_bytes=100, total_bytes=400, wait_seconds=0.2)
    head = make_head("POST", "/v1/size", content_type="application/json", content_length="80")
    with serve_app(make_app(limits), ConnectionLimits()) as url, connect(url) as first, connect(url) as second:
        first.send(head, b" " * 40)
        wait_until(lambda: httpx.post(f"{url}/v1/size", content=b" " * 30, headers=JSON).status_code == 503)
        second.send(head)
        answer = second.read_answer()
        assert answer.status == 503
        assert answer.headers["retry-after"] == "2"
        assert answer.problem["type"] == "urn:dlrm:problem:too-busy"
        first.send(b" " * 40)
        assert first.read_answer().body == b"80"
        assert httpx.post(f"{url}/v1/size", content=b" " * 100, headers=JSON).text == "100"


def test_two_lengths_of_one_body_are_refused(shared_api: Api) -> None:
    head = make_head(
        "POST",
        "/v1/jobs",
        get_key(shared_api.submitter.headers),
        content_type="application/json",
        content_length="2",
        transfer_encoding="chunked",
    )
    with connect(shared_api.url) as connection:
        connection.send(head, b"0\r\n\r\n")
        answer = connection.read_answer()
    assert answer.status == 400
    assert "transfer-encoding" in answer.problem["detail"]
