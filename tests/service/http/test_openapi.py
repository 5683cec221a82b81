"""The OpenAPI document: every answer that a request may get, with an example."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import service
from service.http.problem_kinds import KINDS, MEDIA_TYPE
from tests.service.api import Api, make_document

PREFIX = "#/components/schemas/"


@pytest.fixture(scope="module")
def document(shared_api: Api) -> dict[str, Any]:
    return shared_api.anonymous.get("/openapi.json").json()


def list_operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]


def test_every_problem_of_an_operation_has_an_example_that_fits_its_schema(document: dict[str, Any]) -> None:
    for _, _, operation in list_operations(document):
        problems = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
        assert problems
        for status, answer in problems.items():
            content = answer["content"][MEDIA_TYPE]
            schema = {**content["schema"], "components": document["components"]}
            assert set(content["examples"]) <= set(KINDS)
            for slug in content["examples"]:
                example = document["components"]["examples"][slug]["value"]
                jsonschema_rs.validate(schema, example)
                assert example["status"] == int(status)


def test_operations_that_need_credentials_say_so_and_what_they_answer_without(document: dict[str, Any]) -> None:
    for _, path, operation in list_operations(document):
        needs_credentials = (path.startswith("/v1/") and path != "/v1/session") or path == "/metrics"
        assert bool(operation["security"]) == needs_credentials
        assert ("401" in operation["responses"]) == (
            needs_credentials or operation["operationId"].startswith("sign_in")
        )
        assert "default" not in operation["responses"]


def test_no_answer_of_the_framework_is_documented(document: dict[str, Any]) -> None:
    assert "HTTPValidationError" not in document["components"]["schemas"]
    assert not [name for name in document["components"]["schemas"] if name.startswith("x-")]


def test_every_problem_that_the_service_makes_is_one_of_the_documented_kinds() -> None:
    made = [
        (call.args[0].value, f"{file.name}:{call.lineno}")
        for file in Path(service.__path__[0]).rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "ProblemError"
        if isinstance(call.args[0], ast.Constant)
    ]
    assert len(made) >= 15
    for slug, place in made:
        assert slug in KINDS, f"{place}: {slug} is not in service/http/problem_kinds.py"


def test_every_operation_parameter_and_property_is_described(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]

    def is_described(schema: dict[str, Any]) -> bool:
        # What is said of the whole type is not said again.
        return bool(
            schema.get("description") or schemas.get(schema.get("$ref", "")[len(PREFIX) :], {}).get("description")
        )

    bare = [f"{method} {path}" for method, path, operation in list_operations(document) if not is_described(operation)]
    bare += [
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, described in schema.get("properties", {}).items()
        if not is_described(described)
    ]
    assert not bare
    assert "None" not in " ".join(re.findall(r'"description": "(.*?)"', json.dumps(document)))


def test_every_body_has_an_example_that_the_service_accepts(document: dict[str, Any], shared_api: Api) -> None:
    schedule = {"name": "other", "cron": "0 2 * * *", "document": make_document()}
    schedule_id = shared_api.submitter.post("/v1/schedules", json=schedule).json()["id"]
    paths = {"{owner}": "ann", "{job_id}": shared_api.submit()["id"], "{schedule_id}": schedule_id}
    sent: list[str] = []
    for method, path, operation in list_operations(document):
        for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
            example = content["example"]
            body = example if isinstance(example, str) else json.dumps(example)
            url = re.sub(r"\{\w+\}", lambda part: paths.get(part.group(), part.group()), path)
            if path.startswith("/v1/ingest/") or path in ("/v1/session", "/v1/plans"):
                # They need the token of an attempt, a key that exists, or the program that plans.
                if not isinstance(example, str):
                    jsonschema_rs.validate({**content["schema"], "components": document["components"]}, example)
                continue
            response = shared_api.admin.request(method, url, content=body, headers={"Content-Type": media_type})
            assert response.is_success, f"{method} {path}: {response.text}"
            sent.append(f"{method} {path} {media_type}")
    assert len(sent) >= 9
