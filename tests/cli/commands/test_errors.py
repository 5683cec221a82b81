"""What every command says of a service that is away, of files that are absent, and of itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command

EXAMPLE = str(Path(__file__).parents[3] / "examples" / "minimal.json")


@pytest.mark.parametrize("command", ["submit", "train"])
def test_a_file_that_is_not_there_is_named(dlrm: Command, command: str) -> None:
    ended = dlrm(command, "nowhere.toml")
    assert (ended.code, ended.err) == (2, "error: nowhere.toml: No such file or directory\n")


def test_without_a_service_the_error_says_how_to_get_one(
    dlrm: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("DLRM_URL", "DLRM_API_KEY", "DLRM_STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    ended = dlrm("jobs")
    assert (ended.code, "dlrm serve" in ended.err) == (1, True)


def test_an_existing_run_directory_is_not_overwritten(dlrm: Command, tmp_path: Path) -> None:
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


def test_data_that_is_not_there_is_said_before_a_run_directory_is_made(dlrm: Command, tmp_path: Path) -> None:
    job = tmp_path / "job.toml"
    job.write_text('[data]\ntrain = ["nowhere.tsv"]\n')
    ended = dlrm("train", str(job), "--run-directory", str(tmp_path / "run"))
    assert ended.code == 2
    assert f"data.train.0: no such file: {tmp_path}/nowhere.tsv" in ended.err
    assert not (tmp_path / "run").exists()


COMMANDS = "serve submit jobs show logs cancel pause delete train resume plan prepare evaluate export upload"


@pytest.mark.parametrize("command", COMMANDS.split())
def test_every_command_explains_itself(dlrm: Command, command: str) -> None:
    ended = dlrm(command, "--help")
    assert (ended.code, "Usage: dlrm" in ended.out) == (0, True)
