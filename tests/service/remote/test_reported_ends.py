"""Ends of attempts whose run directory the service does not see: as they were reported, or as the launcher saw them."""

from typing import Any

import pytest

from dlrm.record import AttemptEnd, EndReason, Outcome, RankEnd
from tests.service.api import Api
from tests.service.remote.reporting import Attempt, SilentLauncher, start_attempt

SUCCEEDED = Outcome(state="succeeded", reason=EndReason.COMPLETED, step=5, metrics={"auc": 0.75})
BAD_ROW = "day_0.tsv line 3: 39 columns, expected 40"
BAD_INPUT = Outcome(state="failed", reason=EndReason.BAD_INPUT, message=BAD_ROW, rank=1)
RANK_END = RankEnd(rank=1, exit_code=-9, message="was killed by SIGKILL")
CRASHED = Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message="rank 1 was killed by SIGKILL", rank=1)


@pytest.fixture
def attempt(api: Api, launcher: SilentLauncher) -> Attempt:
    return start_attempt(api, launcher, max_restarts=0)


def get_attempt(attempt: Attempt) -> dict[str, Any]:
    return attempt.get("/attempts")["items"][attempt.number - 1]


def test_a_success_that_was_reported_is_one(attempt: Attempt) -> None:
    assert not attempt.target.shares_files
    attempt.tell_end(AttemptEnd(outcome=SUCCEEDED))
    assert attempt.get_job()["state"] == "RUNNING"
    job = attempt.leave(exit_code=0)
    assert (job["state"], job["reason"], job["metrics"], job["model_path"]) == (
        "SUCCEEDED",
        "completed",
        {"auc": 0.75},
        None,
    )
    assert get_attempt(attempt)["exit_code"] == 0


def test_a_failure_that_was_reported_has_its_message_and_the_ends_of_ranks(attempt: Attempt) -> None:
    attempt.tell_end(AttemptEnd(outcome=BAD_INPUT, rank_ends=[RANK_END]))
    job = attempt.leave(exit_code=64)
    assert (job["state"], job["reason"], job["message"]) == ("FAILED", "bad_input", f"rank 1: {BAD_ROW}")
    ended = get_attempt(attempt)
    assert (ended["exit_code"], ended["rank_ends"]) == (64, [RANK_END.model_dump()])


def test_what_was_reported_counts_before_what_the_launcher_saw(attempt: Attempt) -> None:
    attempt.tell_end(AttemptEnd(outcome=BAD_INPUT))
    job = attempt.leave(exit_code=1, outcome=CRASHED, rank_ends=(RANK_END,))
    assert (job["reason"], get_attempt(attempt)["rank_ends"]) == ("bad_input", [RANK_END.model_dump()])


def test_what_the_launcher_saw_counts_where_nothing_was_reported(attempt: Attempt) -> None:
    job = attempt.leave(exit_code=1, outcome=CRASHED, rank_ends=(RANK_END,))
    assert (job["state"], job["reason"], job["message"]) == ("FAILED", "worker_crashed", CRASHED.message)
    assert get_attempt(attempt)["rank_ends"] == [RANK_END.model_dump()]


@pytest.mark.parametrize(
    ("seen", "said"), [("", "; its last log line: cannot go on"), ("a last cry", "; its last log line: a last cry")]
)
def test_without_any_outcome_the_last_line_of_the_launch_log_is_told(attempt: Attempt, seen: str, said: str) -> None:
    assert attempt.push("launch", ["begins", "cannot go on", " "]).status_code == 200
    assert attempt.push("launch", ["of another node"], rank=1).status_code == 200
    job = attempt.leave(exit_code=3, last_log_line=seen)
    assert job["message"] == f"the launch process ended with exit code 3 and left no outcome{said}"


def test_an_end_with_numbers_that_are_not_finite_is_taken_and_they_are_null(attempt: Attempt) -> None:
    outcome = '{"state": "succeeded", "reason": "completed", "metrics": {"auc": NaN, "log_loss": Infinity, "step": 5}}'
    assert attempt.push("outcome", [f'{{"outcome": {outcome}}}']).status_code == 200
    job = attempt.leave(exit_code=0)
    assert (job["state"], job["metrics"]) == ("SUCCEEDED", {"auc": None, "log_loss": None, "step": 5})


def test_a_second_end_is_refused_and_the_first_one_counts(attempt: Attempt) -> None:
    attempt.tell_end(AttemptEnd(outcome=BAD_INPUT))
    line = AttemptEnd(outcome=SUCCEEDED).model_dump_json()
    assert attempt.push("outcome", [line]).status_code == 422
    assert attempt.push("outcome", [line], first_seq=1).json() == {"acknowledged_seq": 1}
    assert attempt.leave(exit_code=64)["reason"] == "bad_input"


@pytest.mark.parametrize(
    "line", ["{", "{}", '{"outcome": {"state": "great", "reason": "completed"}}', '{"outcome": null, "more": 1}']
)
def test_a_line_that_is_no_end_is_refused(attempt: Attempt, line: str) -> None:
    response = attempt.push("outcome", [line])
    assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "lines.0")
    assert attempt.push("outcome", [AttemptEnd(outcome=SUCCEEDED).model_dump_json()], rank=1).status_code == 422
    attempt.tell_end(AttemptEnd(outcome=SUCCEEDED))


def test_nothing_is_taken_once_the_attempt_has_ended(attempt: Attempt) -> None:
    attempt.leave(exit_code=1)
    for stream in ("log", "launch", "outcome"):
        assert attempt.push(stream, [AttemptEnd(outcome=SUCCEEDED).model_dump_json()]).status_code == 410
    assert attempt.get_job()["state"] == "FAILED"


def test_a_reported_stop_pauses_a_job_and_the_next_attempt_has_its_own_token(
    attempt: Attempt, launcher: SilentLauncher
) -> None:
    attempt.api.submitter.post(f"/v1/jobs/{attempt.job_id}/pause")
    stopped = Outcome(state="stopped", reason=EndReason.STOP_REQUESTED, step=3)
    attempt.tell_end(AttemptEnd(outcome=stopped))
    assert attempt.leave(exit_code=75)["state"] == "PAUSED"
    attempt.api.submitter.post(f"/v1/jobs/{attempt.job_id}/resume")
    second = start_attempt(attempt.api, launcher, attempt.job_id)
    assert second.number == 2
    assert second.target.token != attempt.target.token
    assert attempt.push("log", ["late"]).status_code == 410
    second.tell_end(AttemptEnd(outcome=SUCCEEDED))
    assert second.leave(exit_code=0)["state"] == "SUCCEEDED"
