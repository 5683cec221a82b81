import socket
import subprocess
import sys
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
    assert ended.err.startswith("error: the service at http://127.0.0.1:")
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
    assert "already exists" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_run_directory_that_cannot_be_written_is_named_and_not_left_half_made(tmp_path: Path) -> None:
    run = tmp_path / "run"
    # A limit of no bytes for any file: directories can be made, the first file in them fails as on a full disk.
    limited = ["/bin/sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sys.executable, "-m", "cli"]
    ended = subprocess.run(
        [*limited, "train", EXAMPLE, "--run-directory", run], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr == f"error: {run}: File too large; name another directory with --run-directory\n"
    assert not run.exists()


def test_data_that_is_not_there_is_said_before_a_run_directory_is_made(
    dlrm: Callable[..., Any], tmp_path: Path
) -> None:
    job = tmp_path / "job.toml"
    job.write_text('[data]\ntrain = ["nowhere.tsv"]\n')
    ended = dlrm("train", str(job), "--run-directory", str(tmp_path / "run"))
    assert ended.code == 2
    assert f"data.train.0: no such file: {tmp_path}/nowhere.tsv" in ended.err
    assert not (tmp_path / "run").exists()


def test_the_directory_of_a_run_in_place_of_its_model_is_said(dlrm: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    ended = dlrm("evaluate", str(tmp_path))
    assert ended.code == 2
    assert f"its model is {tmp_path}/model" in ended.err


def test_a_model_that_is_not_there_is_named(dlrm: Callable[..., Any]) -> None:
    ended = dlrm("evaluate", "nowhere/model", "rows.tsv")
    assert ended.code == 2
    assert "nowhere/model" in ended.err


@pytest.mark.parametrize("command", ["serve", "submit", "jobs", "show", "logs", "cancel", "train", "evaluate"])
def test_every_command_explains_itself(dlrm: Callable[..., Any], command: str) -> None:
    ended = dlrm(command, "--help")
    assert ended.code == 0
    assert "Usage: dlrm" in ended.out
