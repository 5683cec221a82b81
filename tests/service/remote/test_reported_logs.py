"""Logs that were pushed: they read as the files do that they are lines of."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.store import log_parts
from tests.service.remote.reporting import Attempt

LINES = [f"line {number}: grüezi \U0001f600" for number in range(12)]
TEXT = "".join(f"{line}\n" for line in LINES)


def push_log(attempt: Attempt, lines: list[str], rank: int = 0, stream: str = "log", size: int = 5) -> None:
    for start in range(0, len(lines), size):
        assert attempt.push(stream, lines[start : start + size], rank).status_code == 200


def test_each_rank_and_the_launch_process_have_logs_of_their_own(attempt: Attempt) -> None:
    assert attempt.get("/logs")["text"] == ""
    push_log(attempt, ["one", "two"], rank=0)
    push_log(attempt, ["three"], rank=1)
    push_log(attempt, ["begins"], stream="launch")
    push_log(attempt, ["of another node"], rank=1, stream="launch")
    texts = [attempt.get("/logs", rank=rank)["text"] for rank in (0, 1, "launch")]
    assert texts == ["one\ntwo\n", "three\n", "begins\n"]
    texts = [attempt.get("/logs", rank="launch", node=node)["text"] for node in (0, 1, 2)]
    assert texts == ["begins\n", "of another node\n", ""]
    assert attempt.api.viewer.get(f"/v1/jobs/{attempt.job_id}/logs", params={"node": 1}).status_code == 422
    assert attempt.api.viewer.get(f"/v1/jobs/{attempt.job_id}/logs", params={"rank": 2}).status_code == 422


def test_a_log_is_complete_once_its_attempt_has_ended(attempt: Attempt) -> None:
    push_log(attempt, LINES)
    first = attempt.get("/logs", limit_bytes=40)
    assert not first["complete"]
    attempt.api.submitter.post(f"/v1/jobs/{attempt.job_id}/cancel")
    attempt.leave()
    assert not attempt.get("/logs", limit_bytes=40)["complete"]
    rest = attempt.get("/logs", offset=first["next_offset"])
    assert (first["text"] + rest["text"], rest["complete"]) == (TEXT, True)


def test_parts_of_any_size_add_up_and_never_split_a_character(attempt: Attempt) -> None:
    push_log(attempt, LINES)
    content = TEXT.encode()

    @settings(max_examples=30)
    @given(limit_bytes=st.integers(4, 300))
    def check(limit_bytes: int) -> None:
        text, offset = "", 0
        while offset < len(content):
            part = attempt.get("/logs", offset=offset, limit_bytes=limit_bytes)
            assert len(part["text"].encode()) <= limit_bytes
            text, offset = text + part["text"], part["next_offset"]
        assert text == TEXT

    check()


def test_the_last_lines_are_those_that_fit(attempt: Attempt) -> None:
    push_log(attempt, LINES)
    assert attempt.get("/logs", tail_lines=2)["text"] == "".join(f"{line}\n" for line in LINES[-2:])
    assert attempt.get("/logs", tail_lines=99)["text"] == TEXT
    size = len(f"{LINES[-1]}\n".encode())
    assert attempt.get("/logs", tail_lines=5, limit_bytes=size + 3)["text"] == f"{LINES[-1]}\n"
    assert attempt.get("/logs", tail_lines=1)["next_offset"] == len(TEXT.encode())


def test_a_repeated_line_is_stored_once_and_a_gap_is_refused(attempt: Attempt) -> None:
    push_log(attempt, ["one", "two"])
    assert attempt.push("log", ["two", "three"], first_seq=2).json() == {"acknowledged_seq": 3}
    assert attempt.push("log", ["five"], first_seq=5).status_code == 409
    assert attempt.get("/logs")["text"] == "one\ntwo\nthree\n"


def test_lines_are_stored_as_they_are_and_no_reports_are_looked_for(attempt: Attempt) -> None:
    lines = ["{", '{"kind": "event", "seq": 7}', "", "\x1b[31mred\x1b[0m", "a\tb"]
    push_log(attempt, lines)
    assert attempt.get("/logs")["text"] == "".join(f"{line}\n" for line in lines)
    assert attempt.push("log", ["\0"]).status_code == 422


def test_the_end_of_a_long_log_is_kept_and_reads_begin_there(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_parts, "MAX_LOG_BYTES", 1000)
    lines = [f"line {number:04}" for number in range(1000)]
    push_log(attempt, lines, size=10)
    push_log(attempt, ["of another rank"], rank=1)
    content = "".join(f"{line}\n" for line in lines)
    part = attempt.get("/logs")
    # Whole pushes are removed, of a hundred bytes each.
    assert part["text"] == content[-1000:]
    assert part["next_offset"] == len(content)
    assert attempt.get("/logs", offset=17)["text"] == part["text"]
    assert attempt.get("/logs", offset=len(content) - 10)["text"] == content[-10:]
    assert attempt.get("/logs", tail_lines=500)["text"] == content[-1000:]
    assert attempt.get("/logs", rank=1)["text"] == "of another rank\n"
    # The numbers of lines go on.
    assert attempt.push("log", ["line 1000"], first_seq=1001).json() == {"acknowledged_seq": 1001}
    assert attempt.push("log", ["line 0003"], first_seq=4).json() == {"acknowledged_seq": 1001}


def test_nothing_is_read_or_written_where_the_run_directory_would_be(attempt: Attempt) -> None:
    push_log(attempt, ["one"])
    directory = Path(attempt.get_job()["run_directory"])
    assert not directory.exists()


def test_pushed_logs_are_searched_listed_and_downloaded(attempt: Attempt) -> None:
    push_log(attempt, LINES)
    push_log(attempt, ["of the first machine"], stream="launch")
    push_log(attempt, ["of another machine"], rank=1, stream="launch")
    found = attempt.get("/logs/matches", q="LINE 7")
    assert [match["text"] for match in found["items"]] == ["line 7: grüezi \U0001f600"]
    assert TEXT.encode()[found["items"][0]["offset"] :].startswith(b"line 7")
    assert not attempt.get("/logs/matches", q="machine", rank="launch", node=5)["items"]
    listed = {item["name"]: item["num_bytes"] for item in attempt.get("/artifacts")["items"]}
    assert listed == {
        "attempt-1/logs/launch.log": 21,
        "attempt-1/logs/launch-node-1.log": 19,
        "attempt-1/logs/rank-0.log": len(TEXT.encode()),
    }
    below = attempt.get("/artifacts", below="attempt-1/logs/launch.log")["items"]
    assert [item["num_bytes"] for item in below] == [21]
    path = f"/v1/jobs/{attempt.job_id}/artifacts/attempt-1/logs"
    whole = attempt.api.viewer.get(f"{path}/rank-0.log")
    assert whole.content == TEXT.encode()
    end = {"Range": "bytes=30-", "If-Range": whole.headers["etag"]}
    assert attempt.api.viewer.get(f"{path}/rank-0.log", headers=end).content == TEXT.encode()[30:]
    assert attempt.api.viewer.get(f"{path}/launch-node-1.log").text == "of another machine\n"
    assert attempt.api.viewer.get(f"{path}/rank-1.log").status_code == 404


def test_what_is_left_of_a_log_is_downloaded(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_parts, "MAX_LOG_BYTES", 100)
    push_log(attempt, LINES, size=1)
    content = attempt.api.viewer.get(f"/v1/jobs/{attempt.job_id}/artifacts/attempt-1/logs/rank-0.log").content
    assert TEXT.encode().endswith(content)
    assert 100 <= len(content) < len(TEXT.encode())
    assert [match["offset"] for match in attempt.get("/logs/matches", q="line 11")["items"]] == [
        TEXT.encode().rfind(b"line")
    ]
