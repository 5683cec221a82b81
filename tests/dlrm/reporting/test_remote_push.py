"""Pushing from a machine whose disk the service does not see: logs and the end of the attempt too."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlrm.record import AttemptDirectory, AttemptEnd, EndReason, EventReport, Outcome, RankEnd, SpoolWriter
from dlrm.reporting import push
from dlrm.reporting.push import MAX_LINES, Pusher
from tests.dlrm.reporting.line_server import LineServer, serve_lines
from tests.patience import wait_until

END = AttemptEnd(
    outcome=Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message="rank 1 was killed by SIGKILL", rank=1),
    rank_ends=[RankEnd(rank=1, exit_code=-9, message="was killed by SIGKILL")],
)


@pytest.fixture
def server() -> Iterator[LineServer]:
    with serve_lines() as running:
        yield running


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AttemptDirectory:
    monkeypatch.setattr(push, "INTERVAL_SECONDS", 0.02)
    attempt = AttemptDirectory(tmp_path / "attempt-1")
    attempt.create()
    return attempt


@pytest.fixture
def target(tmp_path: Path, server: LineServer) -> Path:
    path = tmp_path / "target.json"
    server.write_target(path)
    return path


def write_event(attempt: AttemptDirectory, rank: int = 0, message: str = "") -> None:
    writer = SpoolWriter(attempt.spool_file(rank, "events"))
    writer.write(EventReport(name="n", message=message))
    writer.close()


def test_logs_of_ranks_and_of_the_launch_process_come_and_the_end_comes_last(
    attempt: AttemptDirectory, target: Path, server: LineServer
):
    pusher = Pusher(attempt, [], target)
    pusher.add_launch_log(2, attempt.launch_log)
    pusher.start()
    attempt.launch_log.write_text("begins\n")
    wait_until(lambda: server.lines.get((2, "launch")) == ["begins"])
    pusher.add_ranks(range(2, 4))
    for rank in (2, 3):
        write_event(attempt, rank)
        attempt.rank_log(rank).write_text(f"rank {rank}\nis killed within a li")
    wait_until(lambda: server.lines.get((3, "log")) == ["rank 3"])
    pusher.close(END)
    assert server.lines[3, "log"] == ["rank 3", "is killed within a li"]
    assert server.lines[2, "launch"] == ["begins"]
    assert [json.loads(line)["seq"] for line in server.lines[2, "events"]] == [1]
    assert server.order[-1] == (0, "outcome")
    assert AttemptEnd.model_validate_json(server.lines[0, "outcome"][0]) == END


def test_a_target_of_a_service_that_sees_the_files_gets_reports_alone(
    attempt: AttemptDirectory, target: Path, server: LineServer
):
    server.write_target(target, shares_files=True)
    write_event(attempt)
    attempt.rank_log(0).write_text("said\n")
    pusher = Pusher(attempt, [0], target)
    pusher.start()
    pusher.close()
    assert list(server.lines) == [(0, "events")]


def test_a_token_that_was_replaced_is_read_again_and_no_line_is_lost(
    attempt: AttemptDirectory, target: Path, server: LineServer
):
    pusher = Pusher(attempt, [0], target)
    pusher.start()
    write_event(attempt, message="before")
    wait_until(lambda: server.lines.get((0, "events")))
    # The service knows the new token before the file has it, as where a secret is mounted.
    server.token = "second"
    write_event(attempt, message="after")
    wait_until(lambda: server.num_unauthorized > 2)
    server.write_target(target)
    wait_until(lambda: len(server.lines[0, "events"]) == 2)
    target.write_text("{")
    server.token = "third"
    write_event(attempt, message="at last")
    wait_until(lambda: server.num_unauthorized > 5)
    server.write_target(target)
    pusher.close(END)
    messages = [json.loads(line)["message"] for line in server.lines[0, "events"]]
    assert messages == ["before", "after", "at last"]
    assert len(server.lines[0, "outcome"]) == 1


def test_a_line_that_the_service_cannot_read_is_told_and_holds_up_nothing(
    attempt: AttemptDirectory, target: Path, server: LineServer
):
    for message in ("a", "b", "c"):
        write_event(attempt, message=message)
    lines = attempt.spool_file(0, "events").read_text().splitlines()
    server.refused.add(lines[1])
    pusher = Pusher(attempt, [0], target)
    pusher.start()
    pusher.close(END)
    kept = server.lines[0, "events"]
    assert (kept[0], kept[2]) == (lines[0], lines[2])
    stands_for = json.loads(kept[1])
    assert (stands_for["seq"], stands_for["name"]) == (2, "unreadable_report")
    assert "is no report" in stands_for["message"]


def test_a_log_that_grows_without_end_holds_up_no_other_stream(
    attempt: AttemptDirectory, target: Path, server: LineServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(push, "MAX_LOG_BYTES", 1000)
    attempt.rank_log(0).write_text("".join(f"line {number}\n" for number in range(5000)))
    attempt.rank_log(1).write_text("rank 1\n")
    pusher = Pusher(attempt, [0, 1], target)
    pusher.start()
    wait_until(lambda: server.lines.get((1, "log")))
    assert len(server.lines[0, "log"]) < 5000
    pusher.close(END)
    assert server.lines[0, "log"] == [f"line {number}" for number in range(5000)]
    assert len(server.lines[0, "outcome"]) == 1


def test_the_end_is_sent_even_where_a_log_is_not_sent_in_time(
    attempt: AttemptDirectory, target: Path, server: LineServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(push, "REMOTE_CLOSE_SECONDS", push.END_SECONDS)
    monkeypatch.setattr(push, "MAX_PUSHES", 1)
    attempt.rank_log(0).write_text("x\n" * 10 * MAX_LINES)
    pusher = Pusher(attempt, [0], target)
    pusher.start()
    pusher.close(END)
    assert len(server.lines[0, "outcome"]) == 1


@pytest.mark.parametrize(("fault", "is_told"), [(410, True), (401, False), (404, False), (500, False)])
def test_only_the_answer_that_the_attempt_has_ended_is_told_while_it_runs(
    attempt: AttemptDirectory, target: Path, server: LineServer, *, fault: int, is_told: bool
):
    told = threading.Event()
    pusher = Pusher(attempt, [0], target, told.set)
    pusher.start()
    write_event(attempt, message="before")
    wait_until(lambda: server.lines.get((0, "events")))
    server.fault = fault
    write_event(attempt, message="after")
    assert told.wait(10 if is_told else 0.2) == is_told
    server.fault = None
    pusher.close(END)
    assert ((0, "outcome") in server.lines) != is_told


def test_an_attempt_that_ends_anyway_is_not_told_that_it_has_ended(
    attempt: AttemptDirectory, target: Path, server: LineServer
):
    told = threading.Event()
    pusher = Pusher(attempt, [0], target, told.set)
    pusher.start()
    server.fault = 410
    pusher.close(END)
    assert not told.is_set()


def test_the_end_waits_for_a_service_that_is_away(
    attempt: AttemptDirectory, target: Path, server: LineServer, monkeypatch: pytest.MonkeyPatch
):
    assert push.REMOTE_CLOSE_SECONDS == 600
    monkeypatch.setattr(push, "STOPPED_CLOSE_SECONDS", 0.1)
    server.fault = 503
    pusher = Pusher(attempt, [0], target)
    pusher.start()
    threading.Timer(0.4, lambda: setattr(server, "fault", None)).start()
    pusher.close(END)
    assert len(server.lines[0, "outcome"]) == 1


@pytest.mark.parametrize("is_stopped_before", [True, False])
def test_a_stop_makes_the_wait_for_a_service_that_is_away_short(
    attempt: AttemptDirectory,
    target: Path,
    server: LineServer,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_stopped_before: bool,
):
    monkeypatch.setattr(push, "STOPPED_CLOSE_SECONDS", 0.5)
    server.fault = 503
    pusher = Pusher(attempt, [0], target)
    pusher.start()
    stop_at = time.monotonic() + (0 if is_stopped_before else 0.4)
    pusher.close(END, lambda: time.monotonic() >= stop_at)
    assert 0.4 < time.monotonic() - stop_at < 10
