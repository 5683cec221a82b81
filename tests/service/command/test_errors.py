import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = str(Path(__file__).parents[3] / "examples" / "minimal.json")


@pytest.mark.parametrize("command", ["submit", "train"])
def test_a_file_that_is_not_there_is_named(dlrm: Callable[..., Any], command: str) -> None:
    ended = dlrm(command, "nowhere.toml")
    assert ended.code == 2
    assert ended.err == "error: nowhere.toml: No such file or directory\n"


def test_a_service_that_does_not_answer_is_one_line(dlrm: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLRM_API_KEY", "dlrm_key")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("DLRM_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        ended = dlrm("submit", EXAMPLE)
    assert ended.code == 1
    assert ended.err.startswith("error: no answer from the service at http://127.0.0.1:")
    assert ended.err.count("\n") == 1


def test_without_a_service_the_error_says_how_to_get_one(
    dlrm: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("DLRM_URL", "DLRM_API_KEY", "DLRM_STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    ended = dlrm("jobs")
    assert ended.code == 1
    assert "dlrm serve" in ended.err


def test_an_existing_run_directory_is_not_overwritten(dlrm: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    ended = dlrm("train", EXAMPLE, "--run-directory", str(tmp_path))
    assert ended.code == 2
    assert "exists already" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_model_that_is_not_there_is_named(dlrm: Callable[..., Any]) -> None:
    ended = dlrm("evaluate", "nowhere/model", "rows.tsv")
    assert ended.code == 2
    assert "nowhere/model" in ended.err


@pytest.mark.parametrize("command", ["serve", "submit", "jobs", "show", "logs", "cancel", "train", "evaluate"])
def test_every_command_explains_itself(dlrm: Callable[..., Any], command: str) -> None:
    ended = dlrm(command, "--help")
    assert ended.code == 0
    assert "Usage: dlrm" in ended.out
