"""Headers of answers: security, request ids, entity tags."""

import re
from importlib.metadata import version

import httpx
import pytest

from service.http.connections import ConnectionLimits
from service.settings import Settings
from tests.service.api import Api, make_document, serve_api
from tests.service.http.server import make_app, serve_app
from tests.service.jobs.test_jobs_api import check_problem
from tests.service.raw import connect, get_key, make_head

REQUEST_ID = re.compile(r"req_[0-9A-Z]{26}")
EVERY_ANSWER = [
    ("GET", "/v1/jobs", 200),
    ("HEAD", "/v1/jobs", 200),
    ("GET", "/v1/jobs/job_0", 404),
    ("PUT", "/v1/jobs", 405),
    ("POST", "/v1/jobs", 422),
    ("GET", "/v1/jobs?x", 422),
    ("GET", "/v1/jobs?name=%00", 422),
    ("DELETE", "/v1/session", 204),
    ("GET", "/nothing", 404),
    ("GET", "/", 200),
    ("GET", "/signin", 200),
    ("GET", "/static/0/style/base.css", 200),
    ("GET", "/static/0/nothing.css", 404),
    ("POST", "/static/0/style/base.css", 405),
    ("GET", "/healthz", 200),
    ("GET", "/readyz", 503),
    ("GET", "/metrics", 200),
    ("GET", "/openapi.json", 200),
]


def check_headers(headers: httpx.Headers) -> None:
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["x-request-id"]
    assert headers["dlrm-version"] == version("dlrm-service")
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "strict-transport-security" not in headers
    assert "server" not in headers


@pytest.mark.parametrize(("method", "path", "status"), EVERY_ANSWER)
def test_every_answer_is_guarded_against_misuse_by_a_page(shared_api: Api, method: str, path: str, status: int) -> None:
    response = shared_api.submitter.request(method, path)
    assert response.status_code == status
    check_headers(response.headers)
    assert response.headers["cache-control"] == ("no-cache" if path.startswith("/static/") else "no-store")


def test_a_refusal_without_a_key_is_guarded_too(shared_api: Api) -> None:
    response = shared_api.anonymous.get("/v1/jobs")
    assert response.status_code == 401
    check_headers(response.headers)


def test_a_failure_of_the_service_is_guarded_and_names_its_id_in_the_log(api: Api) -> None:
    api.submit()
    with api.services.database.write() as session:
        session.connection().exec_driver_sql("UPDATE jobs SET state = 'BROKEN'")
    response = api.viewer.get("/v1/jobs", headers={"X-Request-ID": "mine-7"})
    check_headers(response.headers)
    problem = check_problem(response, 500, "internal-error")
    assert problem["request_id"] == response.headers["x-request-id"] == "mine-7"
    assert "mine-7" in problem["detail"]


def test_what_is_no_http_is_answered_with_a_problem_and_the_same_headers() -> None:
    with serve_app(make_app(), ConnectionLimits()) as url, connect(url) as connection:
        connection.send(b"GET / HTTP/1.1\r\nno header\r\n\r\n")
        answer = connection.read_answer()
    assert answer.status == 400
    check_headers(httpx.Headers(answer.headers))
    assert answer.problem["type"] == "urn:dlrm:problem:malformed-request"
    assert answer.problem["request_id"] == answer.headers["x-request-id"]


def test_the_files_of_pages_are_kept_by_browsers_at_addresses_of_their_content(shared_api: Api) -> None:
    [path] = re.findall(r'href="(/static/[0-9a-f]+/style/base.css)"', shared_api.anonymous.get("/").text)
    response = shared_api.anonymous.get(path)
    assert "immutable" in response.headers["cache-control"]
    assert response.headers["content-type"].startswith("text/css")


def test_the_dashboard_may_load_its_own_scripts(shared_api: Api) -> None:
    policy = shared_api.anonymous.get("/").headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "script-src" not in shared_api.viewer.get("/v1/jobs").headers["content-security-policy"]


FORWARDED = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7"}


def test_behind_a_trusted_proxy_that_speaks_https_browsers_stay_with_https(settings: Settings) -> None:
    behind_proxy = settings.model_copy(update={"trusted_proxies": "127.0.0.1"})
    with serve_api(behind_proxy, runs_control_loop=False) as api:
        headers = api.anonymous.get("/healthz", headers=FORWARDED).headers
        assert headers["strict-transport-security"] == "max-age=31536000"
        assert "strict-transport-security" not in api.anonymous.get("/healthz").headers


def test_who_is_no_trusted_proxy_cannot_claim_another_address_or_https(shared_api: Api) -> None:
    headers = shared_api.anonymous.get("/healthz", headers=FORWARDED).headers
    assert "strict-transport-security" not in headers


@pytest.mark.parametrize("given", ["a", "0123456789abcdef-_.", "x" * 64])
def test_a_request_id_of_the_client_is_kept(shared_api: Api, given: str) -> None:
    response = shared_api.viewer.get("/v1/jobs/job_0", headers={"X-Request-ID": given})
    assert response.headers["x-request-id"] == response.json()["request_id"] == given


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, "ü", "a\tb", "<script>", "a;b", '"'])
def test_a_request_id_that_is_no_short_token_is_replaced(shared_api: Api, given: str) -> None:
    with connect(shared_api.url) as connection:
        connection.send(make_head("GET", "/v1/jobs/job_0", get_key(shared_api.viewer.headers), x_request_id=given))
        answer = connection.read_answer()
    assert REQUEST_ID.fullmatch(answer.headers["x-request-id"])
    assert answer.problem["request_id"] == answer.headers["x-request-id"]


def test_every_request_has_an_id_of_its_own(shared_api: Api) -> None:
    with connect(shared_api.url) as connection:
        connection.send(make_head("GET", "/healthz") * 3)
        ids = [connection.read_answer().headers["x-request-id"] for _ in range(3)]
    assert len(set(ids)) == 3


def test_a_job_is_sent_again_only_once_it_has_changed(api: Api) -> None:
    path = f"/v1/jobs/{api.submit()['id']}"
    queued_tag = api.viewer.get(path).headers["etag"]
    api.submitter.post(f"{path}/cancel")
    first = api.viewer.get(path, headers={"If-None-Match": queued_tag})
    tag = first.headers["etag"]
    assert first.status_code == 200
    assert tag != queued_tag
    # From here on the job is at rest; a queued one changes with each minute, as its expected start does.
    assert re.fullmatch('W/"[0-9a-f]{32,}"', tag)
    for given in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        again = api.viewer.get(path, headers={"If-None-Match": given})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert api.viewer.head(path).headers["etag"] == tag
    assert api.viewer.get(path, headers={"If-None-Match": '"other"'}).json() == first.json()


def test_long_answers_are_compressed_for_whoever_can_read_that(shared_api: Api) -> None:
    for _ in range(3):
        shared_api.submit()
    compressed, plain = (
        shared_api.viewer.get("/v1/jobs", headers={"Accept-Encoding": encoding}) for encoding in ("gzip", "identity")
    )
    assert compressed.headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in compressed.headers["vary"]
    assert int(compressed.headers["content-length"]) < len(plain.content) / 2
    assert "content-encoding" not in plain.headers
    assert compressed.json()["items"][0]["id"] == plain.json()["items"][0]["id"]


def test_answers_with_secrets_and_streams_are_not_compressed(shared_api: Api) -> None:
    job_id = shared_api.submit()["id"]
    key = shared_api.admin.post("/v1/keys", json={"name": "k" * 60, "role": "viewer", "owner": "o" * 60})
    job = shared_api.submitter.post("/v1/jobs", json=make_document(labels={f"label-{n}": "x" * 60 for n in range(20)}))
    assert len(job.content) > 1000
    stream = shared_api.viewer.head(f"/v1/jobs/{job_id}/stream")
    assert not [answer for answer in (key, job, stream) if "content-encoding" in answer.headers]
