"""Metrics for Prometheus: what a real run leaves in them, and that their labels are few."""

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.app import create_services
from service.settings import Settings
from service.store.states import JobState
from tests.patience import wait_until
from tests.service.api import Api
from tests.service.control.rounds import run_until, submit
from tests.service.databases import on_both_databases, on_sqlite

LABELS = {"state", "launcher", "reason", "method", "route", "status", "way", "error", "directory", "le"}
"""Names of labels whose values the program chooses, not its users."""


def read(text: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the value of each series by its name and the values of its labels, but for `le`."""
    return {
        (sample.name, tuple(value for name, value in sorted(sample.labels.items()) if name != "le")): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.labels.get("le", "+Inf") == "+Inf"
    }


@pytest.fixture(autouse=True)
def _read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.control.figures.COUNT_SECONDS", 0.0)
    monkeypatch.setattr("service.control.figures.SIZE_SECONDS", 0.0)


@on_both_databases
def test_a_run_leaves_its_wait_its_start_its_end_and_its_reports(live_api: Api) -> None:
    job_id = live_api.submit(labels={"behaviour": "wait"})["id"]

    def figures() -> dict[Any, float]:
        return read(live_api.services.telemetry.render())

    wait_until(lambda: figures().get(("dlrm_start_seconds_count", ("local",))) == 1)
    running = figures()
    assert running["dlrm_queue_wait_seconds_count", ("local",)] == 1
    assert running["dlrm_jobs", ("RUNNING",)] == 1
    assert running["dlrm_cores", ("local",)] == 4
    live_api.submitter.post(f"/v1/jobs/{job_id}/cancel")
    live_api.wait_for(job_id, "CANCELLED")
    ended = figures()
    assert ended["dlrm_attempts_ended_total", ("user_cancelled", "STOPPED")] == 1
    assert {state: ended["dlrm_jobs", (state,)] for state in JobState} == {
        state: float(state == "CANCELLED") for state in JobState
    }
    assert ended["dlrm_ingest_lines_total", ("spool",)] >= 2
    assert ended["dlrm_ingest_bytes_total", ("spool",)] > 100
    assert ended["dlrm_control_round_seconds_count", ()] > 1
    assert ended["dlrm_control_last_round_timestamp_seconds", ()] > 1e9
    assert ended["dlrm_database_bytes", ()] > 10_000
    assert ended["dlrm_disk_bytes", ("runs",)] > ended["dlrm_disk_bytes_free", ("runs",)]


@on_sqlite
def test_no_label_has_a_value_that_users_choose(live_api: Api) -> None:
    job = live_api.submit(labels={"behaviour": "crash"}, name="a-name-of-ours", max_restarts=0)
    live_api.wait_for(job["id"], "FAILED")
    live_api.viewer.get(f"/v1/jobs/{job['id']}/events")
    live_api.anonymous.request("BREW", "/v1/whatever")
    text = live_api.services.telemetry.render().decode()
    names = set(re.findall(r'[{,](\w+)="', text))
    assert names <= LABELS
    for chosen in (job["id"], "a-name-of-ours", "team", "whatever", "BREW"):
        assert chosen not in text


@on_sqlite
def test_the_head_of_the_queue_and_failures_are_counted(settings: Settings) -> None:
    services = create_services(settings)
    large = {"workers_per_node": 4, "memory": "1GiB"}
    first = submit(services, "wait", resources=large)
    run_until(services, first, "RUNNING")
    submit(services, "wait", resources=large)
    services.control.run_once()
    figures = read(services.telemetry.render())
    assert figures["dlrm_queue_jobs", ("local",)] == 1
    assert figures["dlrm_queue_oldest_seconds", ("local",)] >= figures["dlrm_queue_head_wait_seconds", ("local",)] > 0
    services.database.close()


@on_sqlite
def test_without_the_database_the_other_metrics_are_still_there(settings: Settings) -> None:
    services = create_services(settings)
    services.database.close()
    Path(settings.database_url.removeprefix("sqlite:///")).rename(settings.state_directory / "gone")
    settings.state_directory.joinpath("service.sqlite3").mkdir()
    figures = read(services.telemetry.render())
    assert figures["dlrm_control_rounds_total", ()] == 0
    assert ("dlrm_jobs", ("RUNNING",)) not in figures
