"""The control loop with real processes."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from service.access.principal import Principal, Role
from service.app import Services, create_services
from service.control.starter import Starter
from service.jobs import actions
from service.jobs.service import Submission
from service.launchers.protocol import Launch, LaunchFiles
from service.queue.state import RESERVED_AFTER
from service.settings import Settings
from service.store.models import Job
from tests.patience import wait_until
from tests.service.api import Api, make_document
from tests.service.control.rounds import USER, run_until, submit
from tests.service.processes import is_running

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


def list_state_changes(api: Api, job_id: str) -> list[str]:
    events = api.viewer.get(f"/v1/jobs/{job_id}/events").json()["items"]
    return [event["to_state"] for event in events if event["kind"] == "state"]


def read_pid(job: dict[str, Any], attempt: int = 1) -> int:
    record = Path(job["run_directory"]) / f"attempt-{attempt}" / "process.json"
    return json.loads(record.read_text())["pid"]


def test_a_job_runs_to_its_end(live_api: Api) -> None:
    job = live_api.wait_for(live_api.submit(behaviour="succeed")["id"], *ENDED)
    assert (job["state"], job["reason"]) == ("SUCCEEDED", "completed"), job["message"]
    assert job["metrics"] == {"auc": 0.75}
    assert job["model_path"] == f"{job['run_directory']}/model"
    assert (job["progress"]["step"], job["progress"]["auc"], job["progress"]["done_fraction"]) == (5, 0.75, 1.0)
    assert list_state_changes(live_api, job["id"])[:2] == ["QUEUED", "STARTING"]
    path = f"/v1/jobs/{job['id']}"
    steps = live_api.viewer.get(f"{path}/metrics", params={"kind": "step"}).json()["items"]
    assert [item["step"] for item in steps] == [1, 2, 3, 4, 5]
    (attempt,) = live_api.viewer.get(f"{path}/attempts").json()["items"]
    assert (attempt["number"], attempt["state"], attempt["exit_code"]) == (1, "SUCCEEDED", 0)
    log = live_api.viewer.get(f"{path}/logs").json()
    assert (log["attempt"], log["text"], log["complete"]) == (1, "rank 0 says grüezi\n", True)
    assert live_api.viewer.get(f"{path}/logs", params={"attempt": 2}).status_code == 404
    spec = Path(job["run_directory"]) / "spec.json"
    assert json.loads(spec.read_text())["job"]["data"]["train"] == [
        f"{live_api.services.settings.data_roots[0]}/day_*.tsv"
    ]
    target = Path(job["run_directory"]) / "attempt-1" / "push.json"
    assert target.stat().st_mode & 0o777 == 0o600


def test_bad_input_fails_at_once_with_the_rank_and_its_error(live_api: Api) -> None:
    job = live_api.wait_for(live_api.submit(behaviour="bad_input")["id"], *ENDED)
    assert (job["state"], job["reason"], job["num_attempts"]) == ("FAILED", "bad_input", 1)
    assert job["message"] == "rank 1: day_0.tsv line 3: 39 columns, expected 40"
    (attempt,) = live_api.viewer.get(f"/v1/jobs/{job['id']}/attempts").json()["items"]
    assert attempt["exit_code"] == 64


def test_a_crashed_attempt_is_followed_by_another(live_api: Api) -> None:
    job = live_api.wait_for(live_api.submit(behaviour="crash_once")["id"], *ENDED)
    assert (job["state"], job["num_attempts"]) == ("SUCCEEDED", 2)
    attempts = live_api.viewer.get(f"/v1/jobs/{job['id']}/attempts").json()["items"]
    assert [(a["number"], a["state"], a["reason"]) for a in attempts] == [
        (1, "FAILED", "worker_crashed"),
        (2, "SUCCEEDED", "completed"),
    ]
    assert [a["rank_ends"] for a in attempts] == [
        [{"rank": 1, "exit_code": -9, "message": "was killed by SIGKILL"}],
        [],
    ]
    assert all(a["node"] for a in attempts)
    assert "RECOVERING" in list_state_changes(live_api, job["id"])
    log = live_api.viewer.get(f"/v1/jobs/{job['id']}/logs", params={"attempt": 1, "rank": "launch"}).json()
    assert "a wheel came off" in log["text"]


@pytest.mark.slow
def test_a_job_that_goes_on_crashing_fails_after_its_last_restart(live_api: Api) -> None:
    job = live_api.wait_for(live_api.submit(behaviour="crash", max_restarts=1)["id"], *ENDED)
    assert (job["state"], job["reason"], job["num_attempts"]) == ("FAILED", "worker_crashed", 2)
    assert "exit code 3" in job["message"]
    assert "a wheel came off" in job["message"]


def test_cancelling_a_running_job_stops_it_with_a_checkpoint(live_api: Api) -> None:
    job = live_api.wait_for(live_api.submit()["id"], "RUNNING")
    pid = read_pid(job)
    spool = Path(job["run_directory"]) / "attempt-1/spool/rank-0.metrics.jsonl"
    wait_until(spool.exists)
    response = live_api.submitter.post(f"/v1/jobs/{job['id']}/cancel")
    assert (response.status_code, response.json()["state"]) == (202, "CANCELLING")
    live_api.submitter.post(f"/v1/jobs/{job['id']}/cancel")
    job = live_api.wait_for(job["id"], *ENDED)
    assert (job["state"], job["reason"], job["message"]) == (
        "CANCELLED",
        "user_cancelled",
        "cancelled by team (key submitter)",
    )
    assert not is_running(pid)
    (attempt,) = live_api.viewer.get(f"/v1/jobs/{job['id']}/attempts").json()["items"]
    assert (attempt["state"], attempt["exit_code"]) == ("STOPPED", 75)
    assert list_state_changes(live_api, job["id"]) == ["QUEUED", "STARTING", "RUNNING", "CANCELLING", "CANCELLED"]


def test_a_job_that_finishes_while_it_is_cancelled_has_succeeded(live_api: Api) -> None:
    job_id = live_api.submit(behaviour="finish_when_asked_to_stop")["id"]
    job = live_api.wait_for(job_id, "RUNNING")
    wait_until((Path(job["run_directory"]) / "attempt-1/logs/rank-0.log").exists)
    live_api.submitter.post(f"/v1/jobs/{job_id}/cancel")
    assert live_api.wait_for(job_id, *ENDED)["state"] == "SUCCEEDED"


def test_a_job_that_does_not_stop_is_killed_after_the_grace_period(settings: Settings) -> None:
    services = create_services(settings.model_copy(update={"grace_period_seconds": 0.3}))
    job_id = submit(services, "ignore_stop")
    services.control.run_once()
    wait_until((settings.runs_directory / job_id / "attempt-1/logs/rank-0.log").exists)
    services.jobs.change(job_id, USER, actions.cancel)
    job = run_until(services, job_id, *ENDED)
    assert (job.state, job.reason) == ("CANCELLED", "user_cancelled")
    (attempt,) = services.jobs.list_attempts(job_id, USER)
    assert attempt.exit_code == -9


def test_a_job_above_its_memory_is_killed_with_the_figures(live_api: Api) -> None:
    resources = {"workers_per_node": 1, "memory": "256MiB"}
    job = live_api.wait_for(live_api.submit(behaviour="hog", resources=resources, max_restarts=0)["id"], *ENDED)
    assert (job["state"], job["reason"]) == ("FAILED", "out_of_memory")
    assert "limit of 0.25 GiB: raise resources.memory" in job["message"]


def test_a_job_past_its_deadline_is_stopped(live_api: Api) -> None:
    job = live_api.wait_for(live_api.submit(deadline_seconds=1)["id"], *ENDED)
    assert (job["state"], job["reason"]) == ("FAILED", "deadline_exceeded")
    assert "deadline_seconds = 1" in job["message"]
    (attempt,) = live_api.viewer.get(f"/v1/jobs/{job['id']}/attempts").json()["items"]
    assert attempt["state"] == "STOPPED"


# The scheduler, round by round.


def get_state_and_reason(services: Services, job_id: str) -> tuple[str, str]:
    job = services.jobs.get(job_id, USER)
    return job.state, job.reason


def make_resources(cores: int, gibibytes: int = 1) -> dict[str, Any]:
    return {"workers_per_node": 1, "threads_per_worker": cores, "memory": f"{gibibytes}GiB"}


def test_a_small_job_passes_a_large_one_that_cannot_start(settings: Settings) -> None:
    services = create_services(settings)
    first = submit(services, resources=make_resources(3))
    large = submit(services, resources=make_resources(2))
    small = submit(services, resources=make_resources(1))
    assert services.jobs.get(large, USER).reason == "submitted"
    services.control.run_once()
    assert services.jobs.get(first, USER).state == "STARTING"
    assert services.jobs.get(small, USER).state == "STARTING"
    assert get_state_and_reason(services, large) == ("QUEUED", "waiting_for_cpu")
    assert services.jobs.get(large, USER).message == "needs 2 cores, 0 free"


def test_the_room_of_a_job_that_has_waited_long_at_the_head_is_reserved(settings: Settings) -> None:
    services = create_services(settings)
    first = submit(services, resources=make_resources(3))
    large = submit(services, resources=make_resources(2))
    services.control.run_once()
    with services.database.write() as session:
        assert session.get_one(Job, large).at_head_since is not None
        session.get_one(Job, large).at_head_since = datetime.now(UTC) - RESERVED_AFTER
    small = submit(services, resources=make_resources(1))
    services.control.run_once()
    assert get_state_and_reason(services, small) == ("QUEUED", "behind_reservation")
    assert large in services.jobs.get(small, USER).message
    services.jobs.change(first, USER, actions.cancel)
    run_until(services, first, *ENDED)
    services.control.run_once()
    assert services.jobs.get(large, USER).state in {"STARTING", "RUNNING"}
    assert services.jobs.get(small, USER).state in {"STARTING", "RUNNING"}


def test_a_job_that_takes_nothing_of_a_reserved_room_passes(settings: Settings) -> None:
    services = create_services(settings.model_copy(update={"num_gpus": 1}))
    on_gpu = {**make_resources(1), "gpus_per_worker": 1}
    submit(services, resources=on_gpu)
    waiting = submit(services, resources=on_gpu)
    services.control.run_once()
    with services.database.write() as session:
        session.get_one(Job, waiting).at_head_since = datetime.now(UTC) - RESERVED_AFTER
    fitting, too_large = (submit(services, resources=make_resources(cores)) for cores in (2, 1))
    services.control.run_once()
    assert get_state_and_reason(services, waiting) == ("QUEUED", "waiting_for_gpu")
    assert services.jobs.get(fitting, USER).state == "STARTING"
    # One core is left, which the waiting job will need.
    assert get_state_and_reason(services, too_large) == ("QUEUED", "behind_reservation")


def test_every_attempt_has_gpus_of_its_own(settings: Settings) -> None:
    services = create_services(settings.model_copy(update={"num_gpus": 3}))
    resources = [{**make_resources(1), "workers_per_node": number, "gpus_per_worker": 1} for number in (1, 2)]
    jobs = [submit(services, resources=each) for each in resources]
    services.control.run_once()
    visible = []
    for job_id in jobs:
        pid = read_pid({"run_directory": services.jobs.get(job_id, USER).run_directory})
        visible.append(wait_until(lambda pid=pid: psutil.Process(pid).environ())["CUDA_VISIBLE_DEVICES"])
    assert visible == ["0", "1,2"]


def test_workers_inherit_no_secret_of_the_service(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLRM_DATABASE_URL", "postgresql://service:pass-1234@database/dlrm")
    monkeypatch.setenv("PGPASSWORD", "pass-1234")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("SITE_PROXY_AUTH", "wanted")
    services = create_services(settings.model_copy(update={"worker_environment": ["SITE_PROXY_AUTH"]}))
    job_id = submit(services)
    services.control.run_once()
    pid = read_pid({"run_directory": services.jobs.get(job_id, USER).run_directory})
    environment = wait_until(psutil.Process(pid).environ)
    assert "pass-1234" not in str(environment)
    assert (environment["AWS_REGION"], environment["SITE_PROXY_AUTH"]) == ("eu-central-1", "wanted")


def test_a_job_waits_for_memory(settings: Settings) -> None:
    services = create_services(settings)
    submit(services, resources=make_resources(1, 3))
    second = submit(services, resources=make_resources(1, 2))
    services.control.run_once()
    assert get_state_and_reason(services, second) == ("QUEUED", "waiting_for_memory")
    assert services.jobs.get(second, USER).message == "needs 2.00 GiB, 1.00 GiB free"


def test_higher_priority_starts_first(settings: Settings) -> None:
    services = create_services(settings)
    low = submit(services, resources=make_resources(4))
    high = submit(services, resources=make_resources(4), priority=1)
    services.control.run_once()
    assert services.jobs.get(high, USER).state == "STARTING"
    assert get_state_and_reason(services, low) == ("QUEUED", "waiting_for_cpu")


def test_a_job_that_no_longer_fits_the_machine_fails(settings: Settings) -> None:
    job_id = submit(create_services(settings), resources=make_resources(4))
    smaller = create_services(settings.model_copy(update={"num_cores": 2}))
    smaller.control.run_once()
    assert get_state_and_reason(smaller, job_id) == ("FAILED", "cannot_fit")


def test_a_trainer_that_cannot_be_started_fails_the_job_after_its_restarts(settings: Settings, tmp_path: Path) -> None:
    changes = {"trainer_python": tmp_path / "nothing", "restart_delay_seconds": 0.0}
    services = create_services(settings.model_copy(update=changes))
    job_id = submit(services, max_restarts=1)
    services.control.run_once()
    assert get_state_and_reason(services, job_id) == ("QUEUED", "launch_failed")
    services.control.run_once()
    assert get_state_and_reason(services, job_id) == ("FAILED", "launch_failed")
    assert "No such file" in services.jobs.get(job_id, USER).message
    assert [attempt.state for attempt in services.jobs.list_attempts(job_id, USER)] == ["FAILED", "FAILED"]


def test_a_service_that_ended_between_row_and_process_starts_the_same_attempt(settings: Settings) -> None:
    services = create_services(settings)
    job_id = submit(services)
    with services.database.read() as session:
        job = session.get_one(Job, job_id)
    services.leadership.acquire()
    Starter(services.leadership, services.launchers, services.telemetry).begin(job)
    services.control.stop()
    restarted = create_services(settings)
    restarted.control.run_once()
    restarted.control.run_once()
    assert restarted.jobs.get(job_id, USER).state == "RUNNING"
    assert len(restarted.jobs.list_attempts(job_id, USER)) == 1


def test_the_machine_of_an_attempt_is_recorded_before_its_process_starts(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = create_services(settings)
    job_id = submit(services)

    def end_the_service(_: Launch, __: LaunchFiles) -> None:
        raise SystemExit

    monkeypatch.setattr(services.launchers["local"], "start", end_the_service)
    with pytest.raises(SystemExit):
        services.control.run_once()
    (attempt,) = services.jobs.list_attempts(job_id, USER)
    assert attempt.node == services.launchers["local"].node
    services.control.stop()


def test_nobody_learns_the_id_of_another_owners_job_from_what_his_own_waits_for(settings: Settings) -> None:
    services = create_services(settings)
    submit(services, resources=make_resources(3))
    large = submit(services, resources=make_resources(2))
    services.control.run_once()
    with services.database.write() as session:
        session.get_one(Job, large).at_head_since = datetime.now(UTC) - RESERVED_AFTER
    other = Principal("key_1", "bob", "bob", Role.SUBMITTER)
    document = make_document(resources=make_resources(1))
    small = services.jobs.submit(Submission(document, other))[0].id
    services.control.run_once()
    assert "reserved for a job of another owner" in services.jobs.get(small, other).message


@pytest.mark.parametrize("state", ["STARTING", "RECOVERING"])
def test_a_job_without_a_process_is_cancelled_too(settings: Settings, state: str) -> None:
    services = create_services(settings)
    job_id = submit(services, "wait" if state == "STARTING" else "crash")
    if state == "STARTING":
        with services.database.read() as session:
            job = session.get_one(Job, job_id)
        services.leadership.acquire()
        Starter(services.leadership, services.launchers, services.telemetry).begin(job)
    else:
        services.control.run_once()

        def is_recovering() -> bool:
            for job in services.control.reconciler.list_watched():
                services.control.reconciler.reconcile(job)
            return services.jobs.get(job_id, USER).state == "RECOVERING"

        wait_until(is_recovering)
    assert services.jobs.change(job_id, USER, actions.cancel).state == "CANCELLING"
    services.control.run_once()
    assert get_state_and_reason(services, job_id) == ("CANCELLED", "user_cancelled")


def test_an_error_in_one_job_does_not_stop_the_others(settings: Settings) -> None:
    services = create_services(settings)
    broken, fine = submit(services), submit(services)
    services.control.run_once()
    with services.database.write() as session:
        session.get_one(Job, broken).run_directory = "/dev/null"
    services.control.run_once()
    services.control.run_once()
    assert services.jobs.get(fine, USER).state == "RUNNING"
    assert b"dlrm_control_errors_total 2.0" in services.telemetry.render()
