"""Check that a service answers only what its OpenAPI document says."""

import re
from collections.abc import Callable
from typing import Any

import httpx

from service.http.problem_kinds import MEDIA_TYPE


def make_check(document: dict[str, Any]) -> Callable[[httpx.Response], None]:
    """Make a check of responses, to be called with each one before its body is read.

    Paths and methods that are not in `document` are left out.
    """
    paths = [
        (re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path)), operations) for path, operations in document["paths"].items()
    ]

    def check(response: httpx.Response) -> None:
        request = response.request
        operations = next((found for path, found in paths if path.fullmatch(request.url.path)), {})
        operation = operations.get(request.method.lower())
        if operation is None:
            return
        seen = f"{request.method} {request.url.path}: {response.status_code}"
        assert str(response.status_code) in operation["responses"], f"{seen} is not documented"
        if response.headers.get("content-type") == MEDIA_TYPE:
            response.read()
            content = operation["responses"][str(response.status_code)]["content"]
            types = content[MEDIA_TYPE]["schema"]["allOf"][1]["properties"]["type"]["enum"]
            assert response.json()["type"] in types, f"{seen} {response.json()['type']} is not documented"

    return check
