import os
from pathlib import Path

import psutil
import pytest
from pydantic import ValidationError

from service.database.url import get_sqlite_file, parse_database_url
from service.settings import Settings


def test_what_is_not_set_is_measured_or_lies_in_the_state_directory(tmp_path: Path) -> None:
    settings = Settings(state_directory=tmp_path)
    assert settings.database_url == f"sqlite:///{tmp_path}/service.sqlite3"
    assert settings.runs_directory == tmp_path / "runs"
    assert 1 <= settings.num_cores <= len(os.sched_getaffinity(0))
    assert 2**28 < settings.memory_bytes <= psutil.virtual_memory().total
    assert settings.prepared_directory == tmp_path / "prepared"
    assert settings.data_roots == [str(Path.cwd())]


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.setenv("DLRM_STATE_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("DLRM_DATA_ROOTS", f"{tmp_path}/a{os.pathsep}s3://bucket/x/../logs/{os.pathsep}{tmp_path}/b")
    monkeypatch.setenv("DLRM_PREPARED_DIRECTORY", f"{tmp_path}/cache")
    monkeypatch.setenv("DLRM_NUM_CORES", "3")
    settings = Settings()
    assert settings.state_directory == tmp_path
    assert settings.data_roots == [f"{tmp_path}/a", "s3://bucket/logs", f"{tmp_path}/b"]
    assert settings.prepared_directory == tmp_path / "cache"
    assert settings.num_cores == 3


@pytest.mark.parametrize("name", ["what?", "100%20", "a b", "größe#1"])
def test_the_database_is_in_the_state_directory_whatever_its_name(name: str, tmp_path: Path) -> None:
    url = Settings(state_directory=tmp_path / name).database_url
    assert get_sqlite_file(parse_database_url(url)) == tmp_path / name / "service.sqlite3"


@pytest.mark.parametrize("separated", ["", "{0}:", ":{0}", "{0}::{0}", "{0}: "])
def test_an_empty_data_root_is_not_the_working_directory(
    separated: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DLRM_DATA_ROOTS", separated.format(tmp_path))
    with pytest.raises(ValidationError, match="should not be empty"):
        Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data_roots", ["/nowhere"]),
        ("data_roots", ["s3://"]),
        ("num_cores", 0),
        ("port", 70_000),
        ("data_roots", []),
        ("kubernetes_image", ""),
    ],
)
def test_a_setting_at_fault_is_named(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings.model_validate({name: value})


@pytest.mark.parametrize(
    ("host", "url"), [("0.0.0.0", "http://127.0.0.1:8080"), ("::", "http://[::1]:8080"), ("host", "http://host:8080")]
)
def test_the_url_is_one_that_programs_here_can_reach(host: str, url: str) -> None:
    assert Settings(host=host).url == url


@pytest.mark.parametrize("content", [None, "#!/bin/sh\n"], ids=["missing", "not executable"])
def test_an_interpreter_that_cannot_be_run_is_refused(
    content: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    if content is not None:
        python.write_text(content)
    monkeypatch.setenv("DLRM_TRAINER_PYTHON", str(python))
    with pytest.raises(ValidationError, match="trainer_python\n  should be the path of a program that can be run"):
        Settings()
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    assert Settings().trainer_python == python


def test_a_variable_that_is_no_setting_is_found_with_the_nearest_one() -> None:
    settings = Settings(worker_environment=["DLRM_MINE"])
    names = ["DLRM_DATA_ROOT", "dlrm_ports", "DLRM_XYZ", "DLRM_MINE", "DLRM_URL", "DLRM_PORT", "dlrm_host", "PATH"]
    assert settings.find_unknown_variables(names) == {
        "DLRM_DATA_ROOT": "DLRM_DATA_ROOTS",
        "DLRM_XYZ": None,
        "dlrm_ports": "DLRM_PORT",
    }
