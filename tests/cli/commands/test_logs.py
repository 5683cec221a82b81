"""`dlrm logs` against a service: search, and following by its streams."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from service.store.models import Job
from tests.cli.conftest import Command, command
from tests.patience import wait_until
from tests.service.api import Api
from tests.service.control.rounds import run_until
from tests.service.databases import on_sqlite
from tests.service.files.runs import fill_run, write
from tests.service.raw import get_key
from tests.service.reports.attempts import begin_next_attempt

pytestmark = on_sqlite


@pytest.fixture(autouse=True)
def _with_the_service(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLRM_URL", api.url)
    monkeypatch.setenv("DLRM_API_KEY", get_key(api.viewer.headers))


def test_lines_of_a_log_are_searched_over_several_requests(
    dlrm: Command, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.files.log_service.MAX_SEARCHED_BYTES", 1000)
    monkeypatch.setattr("service.files.log_service.BLOCK_BYTES", 100)
    job = api.submit()
    run_until(api.services, job["id"], "RUNNING")
    log = fill_run(job).attempt(1).rank_log(0)
    write(log, b"".join(b"line %d\n" % number for number in range(3000)) + b"LINE \x1b[2J\n")
    ended = dlrm("logs", job["id"], "--search", "Line 29")
    numbers = [29, *range(290, 300), *range(2900, 3000)]
    assert ended.out.splitlines() == [f"line {number}" for number in numbers]
    assert dlrm("logs", job["id"], "--search", "[2J").out == "LINE \\x1b[2J\n"
    assert dlrm("logs", job["id"], "--search", "x", "--follow").code == 2


@pytest.fixture
def start() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Starts commands, which end with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(out: Path, *arguments: str) -> "subprocess.Popen[bytes]":
        with out.open("wb") as stdout:
            started.append(subprocess.Popen(command(*arguments), stdout=stdout))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_lines_of_any_process_are_printed_as_the_stream_says_that_they_came(
    api: Api, tmp_path: Path, start: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    job_id = api.submit(resources={"workers_per_node": 2, "memory": "1GiB"})["id"]
    with api.services.database.write() as session:
        session.execute(update(Job).where(Job.id == job_id).values(num_nodes=2))
    options = {"rank-1": ("--rank", "1"), "launch-node-1": ("--rank", "launch", "--node", "1")}
    followers = [start(tmp_path / name, "logs", job_id, "--follow", *chosen) for name, chosen in options.items()]
    wait_until(lambda: api.services.streams.feed.count_streams() == len(followers), followers[0])
    printed = ""
    for number in (1, 2):
        begin_next_attempt(api, job_id)
        logs = api.services.settings.runs_directory / job_id / f"attempt-{number}" / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        for line in (f"attempt {number}\n", "trains\n"):
            printed += line
            for name in options:
                with (logs / f"{name}.log").open("a") as log:
                    log.write(line)
                wait_until(lambda name=name, text=printed: (tmp_path / name).read_text() == text)
    api.submitter.post(f"/v1/jobs/{job_id}/cancel")
    run_until(api.services, job_id, "CANCELLED")
    assert [follower.wait() for follower in followers] == [0, 0]
    assert [(tmp_path / name).read_text() for name in options] == [printed] * 2


def test_a_log_is_polled_if_something_holds_streams_back(
    api: Api, tmp_path: Path, start: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    job_id = api.submit()["id"]
    api.services.streams.feed.close()
    follower = start(tmp_path / "out", "logs", job_id, "--follow")
    begin_next_attempt(api, job_id)
    log = api.services.settings.runs_directory / job_id / "attempt-1" / "logs" / "rank-0.log"
    write(log, b"a line\n")
    wait_until(lambda: (tmp_path / "out").read_text() == "a line\n", follower)
    api.submitter.post(f"/v1/jobs/{job_id}/cancel")
    run_until(api.services, job_id, "CANCELLED")
    assert follower.wait() == 0
