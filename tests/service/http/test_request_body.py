"""Bodies of requests: which are read, how far, and what becomes of those that never end."""

import json

from tests.patience import wait_until
from tests.service.api import Api, make_document
from tests.service.http.raw import connect, count_requests, get_key, make_head


def test_a_request_that_is_cut_off_is_not_carried_out(api: Api) -> None:
    body = json.dumps(make_document()).encode()
    key = get_key(api.submitter.headers)
    for length in (len(body) + 1, 2 * len(body)):
        with connect(api) as connection:
            head = make_head("POST", "/v1/jobs", key, content_type="application/json", content_length=str(length))
            connection.send(head, body)
    wait_until(lambda: count_requests(api, "POST") == 2)
    assert api.viewer.get("/v1/jobs").json()["items"] == []


def test_a_body_in_chunks_that_is_cut_off_is_not_carried_out(api: Api) -> None:
    body = json.dumps(make_document()).encode()
    head = make_head(
        "POST", "/v1/jobs", get_key(api.submitter.headers), content_type="application/json", transfer_encoding="chunked"
    )
    with connect(api) as connection:
        connection.send(head, b"%x\r\n" % len(body), body, b"\r\n")
    wait_until(lambda: count_requests(api, "POST") == 1)
    assert api.viewer.get("/v1/jobs").json()["items"] == []
