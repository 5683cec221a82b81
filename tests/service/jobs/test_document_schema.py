"""The schema of job documents, as forms read it."""

from jsonschema import Draft202012Validator

from tests.service.api import Api, make_document


def test_the_schema_of_documents_has_every_field_and_is_sent_once(shared_api: Api) -> None:
    answer = shared_api.viewer.get("/v1/schema")
    schema = answer.json()
    validator = Draft202012Validator(schema)
    document = make_document(resources={"workers_per_node": 1, "memory": 2**30})
    assert list(validator.iter_errors(document)) == []
    spec = shared_api.submit()["spec"]
    assert set(spec) == set(schema["properties"])
    assert schema["$defs"]["RunSpec"]["properties"]["epochs"]["description"]
    [fault] = validator.iter_errors({**document, "batch": {"global_sise": 64}})
    assert "global_sise" in fault.message
    again = shared_api.viewer.get("/v1/schema", headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert shared_api.anonymous.get("/v1/schema").status_code == 401
