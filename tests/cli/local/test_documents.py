import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.local.data_files import find_pattern_fault, make_paths_absolute, require_data_files
from cli.local.documents import is_document, read_job
from cli.local.errors import BadInputError

EXAMPLES = Path(__file__).parents[3] / "examples"


# Sweeps have a directory of their own.
@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.*")), ids=lambda path: path.name)
def test_every_example_is_a_valid_job(example: Path) -> None:
    document, job = read_job(example)
    assert job.name == document["name"]


TOML, JSON = 'name = "a"  # caf\xe9\n[data]\nformat = "synthetic"\n', '{"name": "a", "data": {"format": "synthetic"}}'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.toml", TOML.encode("utf-8-sig")),
        ("a.toml", TOML.replace("\n", "\r\n").encode("utf-16")),
        ("a.toml", b"\xfe\xff" + TOML.encode("utf-16-be")),
        ("a.toml", TOML.encode("utf-16-le")),
        ("a.toml", TOML.encode("utf-32")),
        ("a.TOML", TOML.encode()),
        ("a", TOML.encode()),
        ("a.toml.txt", TOML.encode()),
        ("a.json", JSON.encode("utf-8-sig")),
        ("a.JSON", JSON.encode("utf-16")),
        ("a", f"\n {JSON}".encode()),
    ],
)
def test_a_document_is_read_as_editors_and_shells_write_it(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert read_job(tmp_path / name)[0] == {"name": "a", "data": {"format": "synthetic"}}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.toml", b'name = "a"\n[data\n', "not valid TOML: .*line 2"),
        ("a.json", b'{"name": "a",\n "data" {}}', "not valid JSON: line 2, column 9"),
        ("a.json", b"[1]", "the document should be an object"),
        ("a.yaml", b"name: a", "a job document must be a .toml or .json file"),
        ("a.csv", b"a,b", "must be a .toml or .json file; `dlrm prepare --infer .*a.csv` writes one"),
        ("a.json", b'{"data": {"train": ["x"]}, "batch": {"global_sise": 8}}', "batch.global_sise: .*global_size"),
        ("a.toml", b"name = 'a'", "data: required"),
        ("a.json", b'{"run": {"epochs": 1, "seed": 2, "epochs": 3}}', "'epochs' appears twice"),
        ("a.toml", b"name = 'a'\nname = 'b'", "not valid TOML: Cannot overwrite"),
        ("a.toml", TOML.encode("latin-1"), "not UTF-8: byte 17 in line 1 is 0xE9, 'é' in Latin-1; save it as UTF-8"),
        ("a.toml", TOML.encode("utf-16")[:-1], "not UTF-16 text, as its first bytes say: byte"),
        ("a.toml", TOML.replace('"a"', "\u201ca\u201d").encode(), "line 1 has the typographic quote \u201c where"),
        ("a.toml", TOML.replace("[data]", "[data]\u00a0").encode(), r"line 2 has no-break space \(U\+00A0\)"),
        ("a.json", JSON.replace(", ", ",\u200b").encode(), r"line 1 has zero width space \(U\+200B\)"),
        ("a.json", f"// a job\n{JSON}".encode(), "line 1 is a comment, and JSON has none"),
        ("a.json", TOML.encode(), r"not valid JSON: .*; it reads as TOML: name it a.toml"),
        ("a.toml", JSON.encode(), r"not valid TOML: .*; it reads as JSON: name it a.json"),
        ("a.yml", b"name: a", "YAML is not read"),
        ("a.toml", b"\n", "is empty"),
        ("a.json", b"", "is empty"),
        ("a.json", b'{"priority": 1' + b"0" * 5000 + b"}", "not valid JSON: Exceeds the limit"),
        ("a.toml", b"priority = 1" + b"0" * 5000, "not valid TOML: Exceeds the limit"),
        ("a.json", b"[" * 100_000, "nested too deeply"),
        ("a.toml", b"a = " + b"[" * 100_000, "nested too deeply"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_document_that_cannot_be_read_is_named_in_one_sentence(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInputError, match=said) as refused:
        read_job(tmp_path / name)
    assert len(refused.value.lines) == 1
    assert refused.value.lines[0].startswith(str(tmp_path / name))


def test_relative_data_paths_count_from_the_job_file(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text('{"data": {"train": ["days/*.tsv", "/far/day.tsv", "s3://b/day.tsv"], "eval": ["last.tsv"]}}')
    data = make_paths_absolute(read_job(path)[1], path).data
    assert data.train == [str(tmp_path / "days/*.tsv"), "/far/day.tsv", "s3://b/day.tsv"]
    assert data.eval == [str(tmp_path / "last.tsv")]


def test_every_pattern_that_names_no_file_is_said_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "day[1].tsv").write_text("1")
    (tmp_path / "day_2.tsv").write_text("1")
    path = tmp_path / "job.json"
    path.write_text(
        '{"data": {"train": ["day[1].tsv", "day_?.tsv", "night_*.tsv", "s3://b/x", "."], "eval": ["far.tsv"]}}'
    )
    job = make_paths_absolute(read_job(path)[1], path)
    with pytest.raises(BadInputError) as refused:
        require_data_files(job, path)
    assert [line.split(" (")[0] for line in refused.value.lines] == [
        f"{path}: data.train.2: the pattern matches no file: {tmp_path}/night_*.tsv",
        f"{path}: data.eval.0: no such file: {tmp_path}/far.tsv",
    ]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("", "empty path"),
        ("emptiness", "the directory contains no data files"),
        ("broken", "the link is broken"),
        ("pipe", "not a regular file"),
        ("none", "no such file"),
        ("https://host/day.tsv", "https:// is not supported"),
        ("s3://KEY:SECRET@b/x", "contains credentials"),
    ],
)
def test_what_names_no_file_is_told_by_what_it_is(tmp_path: Path, pattern: str, said: str) -> None:
    (tmp_path / "emptiness").mkdir()
    (tmp_path / "broken").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe")
    fault = find_pattern_fault(f"{tmp_path}/{pattern}" if pattern and "://" not in pattern else pattern)
    assert fault
    assert said in fault[0]
    assert "SECRET" not in "".join(fault)
    assert fault[1]


def test_a_path_that_only_the_present_directory_has_is_refused_with_both_paths(
    tmp_path: Path, dlrm: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "day.tsv").write_text("1")
    path = tmp_path / "jobs" / "job.json"
    path.write_text('{"data": {"train": ["data/day.tsv"], "eval": ["nowhere.tsv"]}}')
    monkeypatch.chdir(tmp_path)
    ended = dlrm("train", "jobs/job.json")
    assert ended.code == 2
    first, second = ended.err.strip().splitlines()
    assert f"data.train.0: no file: {tmp_path}/jobs/data/day.tsv, but there is {tmp_path}/data/day.tsv" in first
    assert first.endswith('(valid: "../data/day.tsv", or an absolute path)')
    assert f"data.eval.0: no such file: {tmp_path}/jobs/nowhere.tsv" in second


@pytest.mark.parametrize(
    ("name", "content", "is_job"),
    [
        ("job.toml", 'name = "a"\n', True),
        ("job.json", '{"data": {"train": ["a.csv"]}}', True),
        ("job.json", '{"data": {"train": ["a.csv"]}}\n\n', True),
        ("job.json", '{\n  "data": {"train": ["a.csv"]}\n}\n', True),
        ("job.json", "no JSON", True),
        ("rows.json", '{"label": 0}\n{"label": 1}\n', False),
        ("rows.json", '[{"label": 0}, {"label": 1}]', False),
        ("rows.jsonl", '{"label": 0}\n', False),
    ],
)
def test_a_json_file_with_rows_is_no_job_document(tmp_path: Path, name: str, content: str, is_job: bool) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert is_document(str(path)) is is_job


def test_what_names_several_json_files_is_data_and_a_file_that_is_absent_a_document(tmp_path: Path) -> None:
    assert not is_document(str(tmp_path / "*.json"))
    assert not is_document("s3://logs/day.json")
    assert is_document(str(tmp_path / "job.json"))
