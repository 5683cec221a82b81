"""Job documents in TOML: read as strictly as JSON, with the line or the field at fault."""

import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from service.http.body_text import MAX_DEPTH, parse_toml
from service.http.problems import ProblemError
from tests.service.api import Api, make_document
from tests.service.jobs.test_jobs_api import check_problem

TOML = {"content-type": "application/toml"}
DOCUMENT = """\
# The same as make_document().
labels = { behaviour = "wait" }

[data]
train = ["day_*.tsv"]

[batch]
global_size = 64

[resources]
workers_per_node = 1
memory = "1GiB"
"""
EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.toml"))


def post(api: Api, text: str | bytes, path: str = "/v1/jobs", **headers: str) -> httpx.Response:
    return api.submitter.post(path, content=text, headers={**TOML, **headers})


def test_a_document_in_toml_is_the_same_as_in_json(shared_api: Api) -> None:
    headers = {"Idempotency-Key": "either"}
    first = shared_api.submitter.post("/v1/jobs", json=make_document(), headers=headers)
    second = post(shared_api, DOCUMENT, **headers)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json()["id"] == first.json()["id"]
    assert post(shared_api, DOCUMENT).json()["id"] != first.json()["id"]


@pytest.mark.parametrize("content_type", ["application/toml; charset=utf-8", "Application/TOML"])
def test_the_content_type_may_be_written_in_other_ways(shared_api: Api, content_type: str) -> None:
    response = shared_api.submitter.post("/v1/jobs", content=DOCUMENT, headers={"content-type": content_type})
    assert response.status_code == 201


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('name = "a"\npriority 5\n', "(at line 2, column 10)"),
        ("name = \n", "(at line 1, column 8)"),
        ('name = "a"\nname = "b"\n', "Cannot overwrite a value (at line 2"),
        ("[data]\n[data]\n", "twice (at line 2"),
        (b'name = "\xff"', "not UTF-8: byte 8"),
        ("a = " + "[" * 5000, "nested too deeply"),
        ("a = " + "[" * 100 + "]" * 100, "nested too deeply"),
        (".".join(["a"] * 100) + " = 1", "nested too deeply"),
        ("priority = " + "1" * 5000, "4300 digits"),
        ('name = "a\0"', "Illegal character"),
        ('name = "\\ud800"', "not a Unicode scalar value"),
    ],
)
def test_what_is_no_toml_is_said_with_its_place(shared_api: Api, text: str | bytes, wrong: str) -> None:
    for path in ("/v1/jobs", "/v1/plans"):
        problem = check_problem(post(shared_api, text, path), 400, "malformed-toml")
        assert wrong in problem["detail"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("2026-01-01", "2026-01-01 is a date or a time"),
        ("2026-01-01T10:00:00Z", "is a date or a time"),
        ("10:00:00", "10:00:00 is a date or a time"),
        ("inf", "inf is not a number that can be stored"),
        ("-inf", "-inf is not a number"),
        ("nan", "nan is not a number"),
        ("1e999", "is not a number that can be stored"),
        ("9223372036854775808", "is too large for a whole number of 64 bits"),
        ("0x" + "f" * 100_000, "is too large for a whole number of 64 bits"),
        ('"a\\u0000"', "contains the character NUL"),
    ],
)
def test_a_value_that_json_could_not_have_is_named_with_its_field(shared_api: Api, value: str, message: str) -> None:
    response = post(shared_api, f"{DOCUMENT}\n[run]\nseed = {value}\n")
    (fault,) = check_problem(response, 422, "invalid-request")["errors"]
    assert fault["field"] == "run.seed"
    assert message in fault["message"]
    assert fault["valid"]


def test_a_field_that_there_is_not_is_named_as_in_json(shared_api: Api) -> None:
    (fault,) = check_problem(post(shared_api, f"nmae = 'x'\n{DOCUMENT}"), 422, "invalid-job")["errors"]
    assert fault["field"] == "nmae"


def test_toml_is_refused_where_no_document_is_meant(shared_api: Api) -> None:
    response = shared_api.admin.post("/v1/keys", content='name = "x"', headers=TOML)
    assert "(valid: application/json)" in check_problem(response, 415, "unsupported-media-type")["detail"]
    response = post(shared_api, DOCUMENT, **{"content-type": "text/plain"})
    problem = check_problem(response, 415, "unsupported-media-type")
    assert problem["detail"].endswith("(valid: application/json, application/toml)")


def test_a_viewer_may_not_submit_toml(shared_api: Api) -> None:
    check_problem(shared_api.viewer.post("/v1/jobs", content=DOCUMENT, headers=TOML), 403, "forbidden")


@pytest.mark.parametrize(
    "text",
    [
        "#" + "x" * 2**20,
        "a = [" + "1," * 20_000 + "]",
        "a = [" + "{}," * 10_000 + "]",
        "\n".join(f"a{number} = 1" for number in range(10_000)),
        "\n".join(f"[a{number}]" for number in range(20_000)),
        ".".join(["a"] * 20_000) + " = 1",
    ],
)
def test_a_document_that_is_too_large_is_refused(shared_api: Api, text: str) -> None:
    check_problem(post(shared_api, text), 413, "too-large")


@pytest.mark.parametrize("quote", ["'", '"', "'''", '"""'])
def test_what_looks_like_values_within_texts_and_comments_is_none(quote: str) -> None:
    noise = "a = [1, {b.c}], " * 2000
    text = f"# {noise}\nx = {quote}{noise}{quote} # {noise}\ny = 1"
    assert parse_toml(text.encode()) == {"x": noise, "y": 1}


@pytest.mark.parametrize("ends", ['""""', '"""""', '\\""""', '\\\\"""', '"" """'])
def test_quotes_at_the_end_of_a_text_of_many_lines_end_it(ends: str) -> None:
    many = "\n".join(f"a{number} = 1" for number in range(10_000))
    with pytest.raises(ProblemError, match="20,000 values"):
        parse_toml(f'x = """text{ends}\n{many}'.encode())


def test_the_deepest_document_is_read() -> None:
    name = ".".join(["a"] * MAX_DEPTH)
    assert "a" in parse_toml(f"{name} = 1".encode())


@pytest.mark.parametrize(
    "text",
    [
        '"' * 2**20,
        "'" * 2**20,
        '"""' + '\\"' * 2**19,
        "'''" + "''\n" * 2**18,
        '"\n' * 2**19,
        "\n" * 2**20,
        "# x\n" * 2**18,
        "\n".join(f"[{'.'.join(['a'] * 61)}.b{number}]\nc.d = 1" for number in range(280)),
    ],
)
def test_no_text_of_the_largest_size_takes_long(text: str) -> None:
    start = time.process_time()
    with suppress(ProblemError):
        parse_toml(text.encode()[: 2**20])
    assert time.process_time() - start < 3


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_read(example: Path) -> None:
    assert parse_toml(example.read_bytes())["data"]


def test_the_openapi_document_names_both_types(shared_api: Api) -> None:
    paths = shared_api.anonymous.get("/openapi.json").json()["paths"]
    for path in ("/v1/jobs", "/v1/plans"):
        operation = paths[path]["post"]
        assert set(operation["requestBody"]["content"]) == {"application/json", "application/toml"}
        assert "malformed-toml" in operation["responses"]["400"]["description"]
    assert "malformed-toml" not in paths["/v1/keys"]["post"]["responses"]["400"]["description"]
