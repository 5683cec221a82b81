"""A document is checked as its submission would be, without a plan and without a job."""

from typing import Any

from tests.service.api import Api, make_document

TOML = {"Content-Type": "application/toml"}


def check(api: Api, document: dict[str, Any]) -> dict[str, Any]:
    response = api.submitter.post("/v1/documents", json=document)
    assert response.status_code == 200
    return response.json()


def test_a_valid_document_comes_back_with_its_defaults_and_makes_no_job(api: Api) -> None:
    answer = check(api, make_document(dense_optimizer={"name": "lamb"}))
    assert answer["errors"] == []
    assert answer["document"]["dense_optimizer"]["eps"] == 1e-6
    assert api.submitter.get("/v1/jobs").json()["items"] == []


def test_a_check_names_the_fields_that_a_submission_names(api: Api) -> None:
    documents = [
        {**make_document(), "batch": {"global_sise": 64}},
        {**make_document(), "resources": {"memory": "9000GiB"}},
        {**make_document(), "resources": {"launcher": "kubernetes"}},
        {**make_document(), "data": {"train": ["nowhere.tsv"]}},
        {**make_document(), "run": {"warm_start": {"from": "job_01M7YC19SSXSE32D0R981N0TZ4"}}},
    ]
    for document in documents:
        answer, refusal = check(api, document), api.submitter.post("/v1/jobs", json=document)
        assert refusal.status_code == 422
        assert answer["errors"] == refusal.json()["errors"] != []
        assert (answer["document"] is None) == ("global_sise" in str(document))


def test_text_that_is_no_toml_is_refused_with_its_line(api: Api) -> None:
    response = api.submitter.post("/v1/documents", content='name = "a"\nbatch 64', headers=TOML)
    assert response.status_code == 400
    assert "line 2" in response.json()["detail"]


def test_a_viewer_learns_nothing_of_paths(api: Api) -> None:
    assert api.viewer.post("/v1/documents", json=make_document()).status_code == 403


def test_the_schema_describes_the_fields_and_is_sent_once(api: Api) -> None:
    answer = api.viewer.get("/v1/schema")
    batch = answer.json()["$defs"]["BatchSpec"]["properties"]["global_size"]
    assert batch["default"] == "auto"
    assert "samples" in batch["description"]
    again = api.viewer.get("/v1/schema", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
