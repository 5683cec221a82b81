from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from dlrm.config import PRESETS
from tests.service.api import Api, make_document


def check_problem(response: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    """Check that `response` is a problem document of this kind, and return it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["type"] == f"urn:dlrm:problem:{slug}"
    assert body["status"] == status
    return body


def test_a_submitted_job_waits_and_is_shown_as_submitted(shared_api: Api) -> None:
    created = shared_api.submit(name="ads", priority=3, labels={"team": "ads"})
    shown = shared_api.viewer.get(f"/v1/jobs/{created['id']}").json()
    assert created == {**shown, "queue": None}
    assert (shown["files_at"], shown["are_files_seen"], shown["image"]) == (shown["run_directory"], True, None)
    assert (shown["state"], shown["reason"], shown["created_by"]) == ("QUEUED", "submitted", "submitter")
    assert (shown["name"], shown["priority"], shown["labels"]) == ("ads", 3, {"team": "ads"})
    assert shown["created_at"].endswith("Z")
    assert shown["spec"]["data"]["train"] == ["day_*.tsv"]
    assert shown["spec"]["run"]["epochs"] == "auto"
    assert "world_size" in {number["name"] for number in shown["derived"]}
    assert shown["progress"]["step"] is None
    assert shown["model_path"] is None


def test_an_invalid_document_names_every_field_at_fault(shared_api: Api) -> None:
    document = make_document(batch={"global_sise": 64}, precision="fp64")
    body = check_problem(shared_api.submitter.post("/v1/jobs", json=document), 422, "invalid-job")
    faults = {error["field"]: error for error in body["errors"]}
    assert set(faults) == {"batch.global_sise", "precision"}
    assert "global_size" in faults["batch.global_sise"]["message"]
    assert "fp32" in faults["precision"]["valid"]


def test_the_values_of_a_preset_are_in_the_answer_with_the_names_of_their_fields(shared_api: Api) -> None:
    document = make_document(preset="large_batch", table_optimizer={"learning_rate": 0.5})
    created = shared_api.submitter.post("/v1/jobs", json=document).json()
    spec = shared_api.viewer.get(f"/v1/jobs/{created['id']}").json()["spec"]
    rate = PRESETS["large_batch"].values["dense_optimizer.learning_rate"].value
    assert (spec["preset"], spec["dense_optimizer"]["learning_rate"]) == ("large_batch", rate)
    assert spec["table_optimizer"]["learning_rate"] == 0.5
    assert "dense_optimizer.learning_rate" in spec["filled_by_preset"]
    assert "table_optimizer.learning_rate" not in spec["filled_by_preset"]


@pytest.mark.parametrize("preset", ["huge_batch", 5, ["large_batch"], False])
def test_a_preset_that_there_is_not_is_an_error_that_names_those_there_are(shared_api: Api, preset: Any) -> None:
    response = shared_api.submitter.post("/v1/jobs", json=make_document(preset=preset))
    [fault] = check_problem(response, 422, "invalid-job")["errors"]
    assert (fault["field"], "'large_batch'" in fault["valid"]) == ("preset", True)


def test_a_missing_data_file_is_an_error_in_its_field(api: Api, data_root: Path) -> None:
    document = make_document(data={"train": ["day_7.tsv"]})
    body = check_problem(api.submitter.post("/v1/jobs", json=document), 422, "invalid-job")
    assert body["errors"][0]["field"] == "data.train.0"
    assert str(data_root) in body["errors"][0]["valid"]


def test_a_job_of_several_machines_is_refused(shared_api: Api) -> None:
    resources = {"nodes": 2, "workers_per_node": 1, "memory": "1GiB"}
    response = shared_api.submitter.post("/v1/jobs", json=make_document(resources=resources))
    body = check_problem(response, 422, "cannot-fit")
    assert [error["field"] for error in body["errors"]] == ["resources.nodes"]


def test_of_a_range_of_machines_a_job_gets_this_one_and_occupies_no_other(shared_api: Api) -> None:
    resources = {"nodes": {"min": 1, "max": 8}, "workers_per_node": 2, "memory": "1GiB"}
    job = shared_api.submit(resources=resources)
    assert (job["num_nodes"], job["world_size"]) == (1, 2)
    detail = shared_api.viewer.get(f"/v1/jobs/{job['id']}").json()
    assert [number["value"] for number in detail["derived"] if number["name"] == "world_size"] == [2]


def test_a_job_that_can_never_fit_is_refused_with_what_there_is(shared_api: Api) -> None:
    resources = {"workers_per_node": 4, "threads_per_worker": 2, "memory": "5GiB", "gpus_per_worker": 1}
    response = shared_api.submitter.post("/v1/jobs", json=make_document(resources=resources))
    body = check_problem(response, 422, "cannot-fit")
    valid = {error["field"]: error["valid"] for error in body["errors"]}
    assert set(valid) == {"resources.workers_per_node", "resources.memory", "resources.gpus_per_worker"}
    assert "4 cores" in valid["resources.workers_per_node"]
    assert valid["resources.memory"] == 'at most "4.00GiB"'


@pytest.mark.parametrize(
    ("body", "content_type", "status", "slug"),
    [
        (b"{", "application/json", 400, "malformed-json"),
        (b"[]", "application/json", 422, "invalid-request"),
        (b"", "application/json", 422, "invalid-request"),
        (b"{}", "text/plain", 415, "unsupported-media-type"),
        (b"{}", "", 415, "unsupported-media-type"),
        (b'{"name": "' + b"x" * 2**20 + b'"}', "application/json", 413, "too-large"),
        (
            b'{"data": {"train": ["day_0.tsv"]}, "dense_optimizer": {"learning_rate": NaN}}',
            "application/json",
            400,
            "malformed-json",
        ),
    ],
)
def test_a_body_that_is_no_document_is_told_so(
    shared_api: Api, body: bytes, content_type: str, status: int, slug: str
) -> None:
    check_problem(
        shared_api.submitter.post("/v1/jobs", content=body, headers={"content-type": content_type}), status, slug
    )


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (b'{"name": "\xff"}', "not UTF-8: byte 10"),
        (b"[" * 5_000 + b"]" * 5_000, "nested too deeply"),
        (b'{"priority": ' + b"1" * 5000 + b"}", "4300 digits"),
    ],
)
def test_json_that_cannot_be_read_is_told_what_is_wrong(shared_api: Api, body: bytes, wrong: str) -> None:
    response = shared_api.submitter.post("/v1/jobs", content=body, headers={"content-type": "application/json"})
    problem = check_problem(response, 400, "malformed-json")
    assert wrong in problem["detail"]
    assert problem["title"] == "The body cannot be read as JSON"


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/{job_id}/events", "/v1/jobs/{job_id}/metrics"])
def test_a_cursor_that_is_none_is_named(shared_api: Api, path: str) -> None:
    job_id = shared_api.submit()["id"]
    for cursor in ("", "nonsense", "job_0", f"{job_id}x"):
        response = shared_api.viewer.get(path.format(job_id=job_id), params={"cursor": cursor})
        assert check_problem(response, 422, "invalid-request")["errors"][0]["field"] == "cursor"


def test_a_state_that_is_none_is_told_with_the_valid_ones_once(shared_api: Api) -> None:
    response = shared_api.viewer.get("/v1/jobs", params={"state": ["QUEUED", "foo"]})
    problem = check_problem(response, 422, "invalid-request")
    (fault,) = problem["errors"]
    assert (fault["field"], fault["message"]) == ("state", "'foo' is not one of the valid values")
    assert problem["detail"].count("CANCELLED") == 1


def test_a_large_body_without_a_length_is_refused(shared_api: Api) -> None:
    chunks = (b" " * 2**16 for _ in range(32))
    response = shared_api.submitter.post("/v1/jobs", content=chunks, headers={"content-type": "application/json"})
    check_problem(response, 413, "too-large")


def test_the_same_key_and_document_make_one_job(api: Api) -> None:
    first, second = (
        api.submitter.post("/v1/jobs", json=make_document(), headers={"Idempotency-Key": "k"}) for _ in range(2)
    )
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    assert second.headers["location"] == first.headers["location"]
    other = api.admin.post("/v1/jobs", json=make_document(), headers={"Idempotency-Key": "k"})
    assert other.json()["id"] != first.json()["id"]


def test_the_same_key_with_another_document_is_refused(shared_api: Api) -> None:
    headers = {"Idempotency-Key": "k"}
    first = shared_api.submitter.post("/v1/jobs", json=make_document(), headers=headers).json()
    body = check_problem(
        shared_api.submitter.post("/v1/jobs", json=make_document(name="other"), headers=headers),
        422,
        "idempotency-mismatch",
    )
    assert first["id"] in body["detail"]


def test_submissions_with_one_key_at_the_same_time_make_one_job(api: Api) -> None:
    def submit(_: int) -> httpx.Response:
        return api.submitter.post("/v1/jobs", json=make_document(), headers={"Idempotency-Key": "race"})

    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(submit, range(16)))
    assert sorted(response.status_code for response in responses) == [200] * 15 + [201]
    assert len({response.json()["id"] for response in responses}) == 1
    assert len(api.viewer.get("/v1/jobs").json()["items"]) == 1


def test_pages_stay_where_they_are_while_jobs_are_added(api: Api) -> None:
    ids = [api.submit()["id"] for _ in range(5)]
    first = api.viewer.get("/v1/jobs", params={"limit": 2}).json()
    api.submit()
    second = api.viewer.get("/v1/jobs", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    third = api.viewer.get("/v1/jobs", params={"limit": 2, "cursor": second["next_cursor"]}).json()
    listed = [job["id"] for page in (first, second, third) for job in page["items"]]
    assert listed == sorted(ids, reverse=True)
    assert third["next_cursor"] is None


def test_jobs_are_found_by_state_label_and_name(api: Api) -> None:
    ads = api.submit(name="a", labels={"team": "ads", "tier": "1"})["id"]
    feed = api.submit(name="b", labels={"team": "feed", "tier": "1"})["id"]
    api.submitter.post(f"/v1/jobs/{feed}/cancel")

    def find(**params: Any) -> list[str]:
        return [job["id"] for job in api.viewer.get("/v1/jobs", params=params).json()["items"]]

    assert find(label="team:ads") == [ads]
    assert find(label=["tier:1", "team:feed"]) == [feed]
    assert find(label="team:search") == []
    assert find(name="b") == [feed]
    assert find(state="QUEUED") == [ads]
    assert find(state=["QUEUED", "CANCELLED"]) == [feed, ads]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/jobs?state=DANCING", "state"),
        ("/v1/jobs?label=team", "label"),
        ("/v1/jobs?limit=0", "limit"),
        ("/v1/jobs?limit=201", "limit"),
        ("/v1/jobs/{id}/events?cursor=x", "cursor"),
        ("/v1/jobs/{id}/metrics?kind=dance", "kind"),
        ("/v1/jobs/{id}/metrics?limit=10001", "limit"),
        ("/v1/jobs/{id}/logs?rank=1", "rank"),
    ],
)
def test_a_wrong_parameter_is_named(shared_api: Api, path: str, field: str) -> None:
    job_id = shared_api.submit()["id"]
    body = check_problem(shared_api.viewer.get(path.format(id=job_id)), 422, "invalid-request")
    assert field in {error["field"].removesuffix(".int") for error in body["errors"]}


def test_a_failure_of_the_service_tells_nothing_of_its_inside(api: Api) -> None:
    api.submit()
    with api.services.database.write() as session:
        session.connection().exec_driver_sql("UPDATE jobs SET state = 'BROKEN'")
    body = check_problem(api.viewer.get("/v1/jobs"), 500, "internal-error")
    assert "BROKEN" not in str(body)


def test_a_waiting_job_is_cancelled_at_once_and_only_once(shared_api: Api) -> None:
    job_id = shared_api.submit()["id"]
    cancelled = shared_api.submitter.post(f"/v1/jobs/{job_id}/cancel")
    assert cancelled.status_code == 202
    body = cancelled.json()
    assert (body["state"], body["reason"]) == ("CANCELLED", "user_cancelled")
    assert body["finished_at"] is not None
    again = check_problem(shared_api.submitter.post(f"/v1/jobs/{job_id}/cancel"), 409, "conflict")
    assert again["state"] == "CANCELLED"
    events = shared_api.viewer.get(f"/v1/jobs/{job_id}/events").json()["items"]
    changes = [(event["from_state"], event["to_state"], event["actor"], event["reason"]) for event in events]
    assert changes == [
        (None, "QUEUED", "team", "submitted"),
        ("QUEUED", "CANCELLED", "team", "user_cancelled"),
    ]


def test_events_come_in_pages_oldest_first(shared_api: Api) -> None:
    job_id = shared_api.submit()["id"]
    shared_api.submitter.post(f"/v1/jobs/{job_id}/cancel")
    first = shared_api.viewer.get(f"/v1/jobs/{job_id}/events", params={"limit": 1}).json()
    assert [event["to_state"] for event in first["items"]] == ["QUEUED"]
    second = shared_api.viewer.get(f"/v1/jobs/{job_id}/events", params={"cursor": first["next_cursor"]}).json()
    assert [event["to_state"] for event in second["items"]] == ["CANCELLED"]
    assert second["next_cursor"] is None


def test_events_are_found_by_name_and_come_newest_first(shared_api: Api) -> None:
    path = f"/v1/jobs/{shared_api.submit()['id']}"
    for action in ("hold", "release", "hold", "cancel"):
        shared_api.submitter.post(f"{path}/{action}").raise_for_status()

    def ask(**query: Any) -> list[str | None]:
        """List the names or states of the events of all pages of one event each."""
        names: list[str | None] = []
        while True:
            page = shared_api.viewer.get(f"{path}/events", params={"limit": 1, **query}).json()
            names += [event["name"] or event["to_state"] for event in page["items"]]
            if page["next_cursor"] is None:
                return names
            query["cursor"] = page["next_cursor"]

    assert ask(order="desc") == ["CANCELLED", "held", "released", "held", "QUEUED"]
    assert ask(order="desc", name=["held", "released"]) == ["held", "released", "held"]
    assert ask(name="held") == ["held", "held"]
    assert ask(name="plan") == []


def test_a_job_without_attempts_has_an_empty_log_that_is_not_complete(shared_api: Api) -> None:
    job_id = shared_api.submit()["id"]
    assert shared_api.viewer.get(f"/v1/jobs/{job_id}/attempts").json() == {"items": [], "next_cursor": None}
    log = shared_api.viewer.get(f"/v1/jobs/{job_id}/logs").json()
    assert (log["text"], log["next_offset"], log["complete"]) == ("", 0, False)


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/plans"])
def test_more_files_than_the_service_looks_for_are_refused_by_field(shared_api: Api, path: str) -> None:
    document = {"data": {"train": ["day_0.tsv"] * 1001, "eval": ["day_1.tsv"] * 1000}}
    body = check_problem(shared_api.submitter.post(path, json=document), 422, "invalid-job")
    assert [error["field"] for error in body["errors"]] == ["data.train"]
    assert "at most 1,000" in body["errors"][0]["valid"]
