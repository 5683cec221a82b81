"""`dlrm delete` against a real service whose trainer fails at once."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cli.demo.service_process import run_service
from service.client import Client, Job
from tests.cli.test_service import DOCUMENT, SETTINGS
from tests.service.jobs.test_checkpoints_api import save_checkpoint


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    directory = tmp_path_factory.mktemp("work") / ".dlrm"
    with run_service(directory, SETTINGS) as client:
        yield client


@pytest.fixture(autouse=True)
def _of_that_service(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    monkeypatch.setenv("DLRM_URL", client.url)
    monkeypatch.setenv("DLRM_API_KEY", client.create_key(os.urandom(8).hex(), "admin").key or "")


def end_job(client: Client) -> Job:
    job = client.submit(DOCUMENT)
    *_, ended = client.follow(job.id, 0.1)
    return ended


def is_there(client: Client, job: Job) -> bool:
    return job.id in {other.id for other in client.jobs()}


def answer(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `dlrm` at a terminal whose user types `text`."""
    terminal, stdin = pty.openpty()
    try:
        os.write(terminal, text.encode())
        command = [sys.executable, "-m", "cli", *arguments]
        return subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=False)
    finally:
        os.close(terminal)
        os.close(stdin)


def test_a_terminal_is_shown_what_is_lost_and_asked(client: Client) -> None:
    job, other = end_job(client), end_job(client)
    for step in (5, 10):
        save_checkpoint({"run_directory": job.run_directory}, step, num_bytes=1500)
    refused = answer("n\n", "delete", job.id, other.id)
    assert refused.returncode == 1
    lines = [line.split() for line in refused.stderr.splitlines()]
    assert [job.id, "first", "FAILED", "2,", "3.0", "kB"] in [line[:6] for line in lines]
    assert "Delete 2 jobs for good?" in refused.stderr
    assert is_there(client, job)
    agreed = answer("y\n", "delete", job.id, other.id)
    assert (agreed.returncode, agreed.stdout) == (0, f"{job.id} deleted\n{other.id} deleted\n")
    assert not is_there(client, job)


def test_where_nobody_can_be_asked_consent_is_an_option(dlrm: Callable[..., Any], client: Client) -> None:
    job = end_job(client)
    refused = dlrm("delete", job.id)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "--yes" in refused.err
    assert is_there(client, job)
    assert dlrm("delete", job.id, "--yes").out == f"{job.id} deleted\n"
    assert not is_there(client, job)


def test_where_one_job_cannot_be_deleted_none_is(dlrm: Callable[..., Any], client: Client) -> None:
    ended = end_job(client)
    waiting = client.submit({**DOCUMENT, "max_restarts": 9})
    for other, said in ((waiting.id, "only a job that has ended can be deleted"), ("job_nowhere", "there is no job")):
        refused = dlrm("delete", ended.id, other, "--yes")
        assert refused.code == 2
        assert said in refused.err
    assert is_there(client, ended)


def test_what_is_no_id_of_a_job_is_said_to_be_none(dlrm: Callable[..., Any]) -> None:
    ended = dlrm("delete", "job_1", "../keys/key_1", "--yes")
    assert ended.code == 2
    assert "JOB_ID: '../keys/key_1' is not a job id" in ended.err
