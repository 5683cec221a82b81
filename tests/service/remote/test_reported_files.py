"""Checkpoints and models on disks that the service does not see: as they were reported."""

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from dlrm.record import AttemptEnd, CheckpointReport, EndReason, Outcome
from service.store.pace import Pace
from tests.service.remote.reporting import Attempt, SilentLauncher, start_attempt

RUN = "/nowhere/runs/job"
BUCKET = "s3://bucket/runs/job"
SUCCEEDED = Outcome(state="succeeded", reason=EndReason.COMPLETED, step=5)
CRASHED = Outcome(state="failed", reason=EndReason.WORKER_CRASHED, message="a cable was loose")
MODEL: dict[str, Any] = {"num_bytes": 3, "num_files": 1, "files": [{"name": "model.safetensors", "num_bytes": 3}]}


def make_checkpoint(step: int, run: str = RUN) -> dict[str, Any]:
    """Make the details of a checkpoint of a run of 100 steps."""
    path = f"{run}/checkpoints/step-{step:08d}"
    report = CheckpointReport(
        step=step, num_samples=64 * step, num_steps=100, num_bytes=10 * step, world_size=2, time=1.8e9 + step, path=path
    )
    return report.model_dump()


def list_checkpoints(attempt: Attempt) -> list[dict[str, Any]]:
    return attempt.get("/checkpoints")["items"]


@pytest.mark.parametrize(("event", "run"), [("checkpoint_saved", RUN), ("uploaded", BUCKET)])
def test_checkpoints_that_were_reported_are_listed_newest_first(attempt: Attempt, event: str, run: str) -> None:
    assert list_checkpoints(attempt) == []
    for step in (5, 25):
        attempt.tell(event, seconds=1.5, **make_checkpoint(step, run))
    assert list_checkpoints(attempt) == [
        {
            "step": step,
            "num_samples": 64 * step,
            "done_fraction": step / 100,
            "time": f"2027-01-15T08:00:{step:02}Z",
            "num_bytes": 10 * step,
            "world_size": 2,
            "path": f"{run}/checkpoints/step-{step:08d}",
        }
        for step in (25, 5)
    ]


def test_a_checkpoint_that_is_not_in_the_bucket_yet_does_not_count(attempt: Attempt) -> None:
    details = make_checkpoint(5)
    del details["path"]
    attempt.tell("checkpoint_saved", **details)
    assert list_checkpoints(attempt) == []
    attempt.tell("uploaded", **make_checkpoint(5, BUCKET))
    assert [item["step"] for item in list_checkpoints(attempt)] == [5]


def test_files_that_the_service_does_not_see_are_listed_with_their_place(attempt: Attempt) -> None:
    attempt.tell("uploaded", **make_checkpoint(5, BUCKET))
    listed = attempt.get("/artifacts")["items"]
    place = f"{BUCKET}/checkpoints/step-00000005"
    assert [(item["name"], item["num_bytes"], item["place"]) for item in listed] == [
        ("checkpoints/step-00000005", 50, place)
    ]
    for name in ("checkpoints/step-00000005", "checkpoints/step-00000005/COMPLETE"):
        answer = attempt.api.viewer.get(f"/v1/jobs/{attempt.job_id}/artifacts/{name}")
        assert (answer.status_code, answer.json()["place"]) == (409, place)
        assert answer.json()["type"] == "urn:dlrm:problem:files-elsewhere"
    assert attempt.api.viewer.get(f"/v1/jobs/{attempt.job_id}/artifacts/model").status_code == 404


def test_removed_checkpoints_are_gone_and_fill_no_list_of_events(attempt: Attempt) -> None:
    for step in (1, 2, 3):
        attempt.tell("checkpoint_saved", **make_checkpoint(step))
        attempt.tell("checkpoints_removed", steps=[step - 1, 77])
    assert [item["step"] for item in list_checkpoints(attempt)] == [3]
    names = [event["name"] for event in attempt.get("/events")["items"] if event["kind"] == "report"]
    assert names == ["checkpoint_saved"] * 3


@pytest.mark.parametrize(
    "changes", [{"step": -1}, {"step": 2**70}, {"time": 1e300}, {"path": "a\0b"}, {"path": ""}, {"world_size": "x"}]
)
def test_details_that_cannot_be_stored_leave_an_event_alone(attempt: Attempt, changes: dict[str, Any]) -> None:
    attempt.tell("checkpoint_saved", **(make_checkpoint(5) | changes))
    attempt.tell("model_saved", **(MODEL | {"path": "a\0b"}))
    attempt.tell("checkpoints_removed", steps="all")
    assert list_checkpoints(attempt) == []
    attempt.tell_end(AttemptEnd(outcome=SUCCEEDED))
    assert attempt.leave(exit_code=0)["model_path"] is None


def test_other_ranks_report_no_files(attempt: Attempt) -> None:
    attempt.tell("checkpoint_saved", rank=1, **make_checkpoint(5))
    assert list_checkpoints(attempt) == []


def test_a_restart_counts_as_progress_what_the_attempt_itself_has_saved(
    attempt: Attempt, launcher: SilentLauncher
) -> None:
    attempt.tell("checkpoint_saved", **make_checkpoint(5))
    attempt.tell("checkpoint_saved", **make_checkpoint(10))
    attempt.tell_end(AttemptEnd(outcome=CRASHED))
    attempt.leave(exit_code=1)
    second = start_attempt(attempt.api, launcher, attempt.job_id)
    # It goes on from an older one, and writes that step again.
    second.tell("checkpoints_removed", steps=[10])
    second.tell("checkpoint_saved", **make_checkpoint(5))
    second.tell_end(AttemptEnd(outcome=SUCCEEDED))
    second.leave(exit_code=0)
    assert [item["saved_step"] for item in second.get("/attempts")["items"]] == [10, 5]
    assert [item["step"] for item in list_checkpoints(second)] == [5]


@pytest.mark.parametrize(("event", "run"), [("model_saved", RUN), ("uploaded", BUCKET)])
def test_the_model_of_a_job_is_where_it_was_reported_once_the_job_has_succeeded(
    attempt: Attempt, launcher: SilentLauncher, event: str, run: str
) -> None:
    api = attempt.api
    attempt.tell(event, path=f"{run}/model", **MODEL)
    assert attempt.get_job()["model_path"] is None
    attempt.tell_end(AttemptEnd(outcome=SUCCEEDED))
    assert attempt.leave(exit_code=0)["model_path"] == f"{run}/model"
    # Another job starts from it: the trainer gets the place, and checks what is there.
    heir = start_attempt(api, launcher, run={"warm_start": {"from": attempt.job_id, "optimizer_state": True}})
    document = json.loads(launcher.files[heir.name].document)
    assert document["job"]["run"]["warm_start"] == {"from": run, "optimizer_state": True}
    assert api.submitter.delete(f"/v1/jobs/{attempt.job_id}").status_code == 409


def test_no_job_starts_from_one_that_has_not_reported_its_model(attempt: Attempt) -> None:
    attempt.tell_end(AttemptEnd(outcome=SUCCEEDED))
    attempt.leave(exit_code=0)
    document = {"data": {"train": ["day_*.tsv"]}, "run": {"warm_start": {"from": attempt.job_id}}}
    refused = attempt.api.submitter.post("/v1/jobs", json=document)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["message"] == f"{attempt.job_id!r} has not reported where its model is"


@pytest.mark.parametrize("has_reported", [True, False])
def test_a_deleted_job_leaves_no_rows_and_says_which_files_stay(
    attempt: Attempt, tmp_path: Path, *, has_reported: bool
) -> None:
    api = attempt.api
    directory = Path(attempt.get_job()["run_directory"])
    directory.mkdir()
    (directory / "of-somebody-else").touch()
    if has_reported:
        attempt.tell("checkpoint_saved", **make_checkpoint(5))
        attempt.push("log", ["a line"])
        attempt.push("launch", ["begins"])
    attempt.tell_end(AttemptEnd(outcome=CRASHED.model_copy(update={"reason": EndReason.DIVERGED})))
    attempt.leave(exit_code=1)
    answer = api.submitter.delete(f"/v1/jobs/{attempt.job_id}")
    assert answer.status_code == 202
    assert "diverged" in answer.json()["reason"]
    assert answer.json()["files_left_at"] == (RUN if has_reported else str(directory))
    api.services.deletions.finish_deletions(Pace(lambda: False))
    assert api.viewer.get(f"/v1/jobs/{attempt.job_id}").status_code == 404
    with api.services.database.read() as session:
        for query in (
            f"SELECT count(*) FROM checkpoints WHERE job_id = '{attempt.job_id}'",
            f"SELECT count(*) FROM attempts WHERE job_id = '{attempt.job_id}'",
            "SELECT count(*) FROM log_parts WHERE attempt_id NOT IN (SELECT id FROM attempts)",
        ):
            assert session.execute(text(query)).scalar_one() == 0
    assert (directory / "of-somebody-else").exists()
    (directory / "of-somebody-else").unlink()
    directory.rmdir()


def make_report(step: int, run: str = RUN) -> CheckpointReport:
    return CheckpointReport.model_validate(make_checkpoint(step, run))


@pytest.mark.parametrize("is_pushed", [True, False])
def test_files_that_only_the_end_names_are_those_of_the_job(attempt: Attempt, *, is_pushed: bool) -> None:
    attempt.tell("checkpoint_saved", **make_checkpoint(5))
    if is_pushed:
        attempt.tell_end(AttemptEnd(outcome=SUCCEEDED, model_path=f"{RUN}/model", checkpoint=make_report(10)))
        job = attempt.leave(exit_code=0)
    else:
        job = attempt.leave(exit_code=0, outcome=SUCCEEDED, model_path=f"{RUN}/model", checkpoint=make_report(10))
    assert (job["state"], job["model_path"]) == ("SUCCEEDED", f"{RUN}/model")
    assert [(item["step"], item["path"]) for item in list_checkpoints(attempt)] == [
        (step, f"{RUN}/checkpoints/step-{step:08d}") for step in (10, 5)
    ]
    assert attempt.get("/attempts")["items"][0]["saved_step"] == 10


def test_what_pushes_have_told_stays_as_it_was_told(attempt: Attempt) -> None:
    attempt.tell("checkpoint_saved", **make_checkpoint(10))
    attempt.tell("model_saved", **MODEL, path=f"{RUN}/model")
    job = attempt.leave(exit_code=0, outcome=SUCCEEDED, model_path="/other/model", checkpoint=make_report(10, "/other"))
    assert job["model_path"] == f"{RUN}/model"
    assert [item["path"] for item in list_checkpoints(attempt)] == [f"{RUN}/checkpoints/step-00000010"]


def test_a_checkpoint_that_only_the_end_names_counts_as_progress(attempt: Attempt, launcher: SilentLauncher) -> None:
    first = start_attempt(attempt.api, launcher, max_restarts=0)
    job = first.leave(exit_code=1, outcome=CRASHED, checkpoint=make_report(5))
    assert (job["state"], first.get("/attempts")["items"][0]["saved_step"]) == ("FAILED", 5)


def test_a_checkpoint_of_no_time_leaves_an_end_alone(attempt: Attempt) -> None:
    checkpoint = make_report(5).model_copy(update={"time": 1e300})
    job = attempt.leave(exit_code=0, outcome=SUCCEEDED, checkpoint=checkpoint)
    assert (job["state"], list_checkpoints(attempt)) == ("SUCCEEDED", [])
