from pathlib import Path

import pytest

from cli.local.documents import is_document


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
