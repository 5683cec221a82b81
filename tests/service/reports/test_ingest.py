"""Pushed reports: each is stored once, whoever delivers it."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlrm.record import EventReport, ProgressReport, SpoolWriter, StepReport
from service.control.starter import make_launch
from service.reports.spool_tail import SpoolTail
from service.store.models import Attempt
from tests.made_reports import make_evaluation, make_step_line
from tests.service.api import Api
from tests.service.databases import on_both_databases, on_sqlite
from tests.service.raw import connect, get_key, make_head
from tests.service.reports.attempts import TOKEN, begin_next_attempt, get_job, push_lines


@pytest.fixture
def attempt(api: Api) -> Attempt:
    """First attempt of a job of two ranks."""
    return begin_attempt(api)


def begin_attempt(api: Api) -> Attempt:
    job = api.submit(resources={"workers_per_node": 2, "memory": "1GiB"})
    return begin_next_attempt(api, job["id"])


def push(api: Api, attempt: Attempt, first: int, lines: list[str], **changes: Any) -> httpx.Response:
    return push_lines(api, attempt, lines, **{"first_seq": first, **changes})


def get_acknowledged_seq(api: Api, attempt: Attempt, rank: int = 0, stream: str = "metrics") -> int:
    response = api.anonymous.get(
        f"/v1/ingest/{attempt.id}",
        params={"rank": rank, "stream": stream},
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    return response.json()["acknowledged_seq"]


def list_known_seqs(api: Api, attempt: Attempt) -> list[int]:
    items = api.viewer.get(f"/v1/jobs/{attempt.job_id}/metrics").json()["items"]
    return [item["seq"] for item in items]


@on_both_databases
def test_lines_already_known_are_skipped(api: Api, attempt: Attempt) -> None:
    assert push(api, attempt, 1, [make_step_line(1), make_step_line(2)]).json() == {"acknowledged_seq": 2}
    assert push(api, attempt, 2, [make_step_line(2), make_step_line(3)]).json() == {"acknowledged_seq": 3}
    assert push(api, attempt, 1, [make_step_line(1)]).json() == {"acknowledged_seq": 3}
    assert list_known_seqs(api, attempt) == [1, 2, 3]
    assert get_acknowledged_seq(api, attempt) == 3
    assert get_acknowledged_seq(api, attempt, rank=1) == 0


@on_both_databases
def test_a_gap_is_refused_with_the_number_to_go_on_behind(api: Api, attempt: Attempt) -> None:
    push(api, attempt, 1, [make_step_line(1)])
    response = push(api, attempt, 3, [make_step_line(3)])
    assert response.status_code == 409
    assert response.json()["acknowledged_seq"] == 1
    assert list_known_seqs(api, attempt) == [1]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "{}",
        '{"kind": "step"}',
        make_step_line(7),
        make_step_line(2, time=1e300),
        make_step_line(2).replace('"step":2', '"step":"x"'),
    ],
)
def test_a_bad_line_is_named_and_nothing_of_its_batch_is_taken_in(api: Api, attempt: Attempt, line: str) -> None:
    response = push(api, attempt, 1, [make_step_line(1), line])
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "lines.1"
    assert get_acknowledged_seq(api, attempt) == 0


@pytest.mark.parametrize("changes", [{"rank": 2}, {"rank": -1}, {"stream": "songs"}, {"first_seq": 0}])
def test_a_rank_or_stream_that_is_not_there_is_named(api: Api, attempt: Attempt, changes: dict[str, Any]) -> None:
    response = push(api, attempt, 1, [make_step_line(1)], **changes)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] in changes


@on_both_databases
def test_reports_become_progress_metrics_and_events(api: Api, attempt: Attempt) -> None:
    events = [
        ProgressReport(seq=1, phase="loading", done_fraction=0.25).model_dump_json(),
        EventReport(
            seq=2, time=5.0, name="plan", message="2 tables\0", details={"tables": 2, "x": float("nan")}
        ).model_dump_json(),
    ]
    push(api, attempt, 1, events, stream="events")
    assert api.viewer.get(f"/v1/jobs/{attempt.job_id}").json()["progress"]["done_fraction"] == 0.25
    evaluation = make_evaluation(2, seq=3, auc=0.7)
    push(api, attempt, 1, [make_step_line(1), make_step_line(2, loss=None), evaluation.model_dump_json()])
    progress = api.viewer.get(f"/v1/jobs/{attempt.job_id}").json()["progress"]
    assert progress == {
        "phase": "training",
        "message": None,
        "step": 2,
        "num_steps": 10,
        "global_size": None,
        "done_fraction": 0.2,
        "loss": 1.0,
        "auc": 0.7,
        "samples_per_second": 100.0,
        "eta_seconds": 8 * 64 / 100.0,
        "noise_scale": None,
    }
    reported = [e for e in api.viewer.get(f"/v1/jobs/{attempt.job_id}/events").json()["items"] if e["kind"] == "report"]
    assert [(e["name"], e["rank"], e["attempt"], e["details"]) for e in reported] == [
        ("plan", 0, 1, {"tables": 2, "x": None})
    ]
    evaluations = api.viewer.get(f"/v1/jobs/{attempt.job_id}/metrics", params={"kind": "evaluation"}).json()["items"]
    assert [(item["attempt"], item["auc"]) for item in evaluations] == [(1, 0.7)]


def test_the_metrics_of_a_job_are_those_that_the_openapi_document_describes(api: Api, attempt: Attempt) -> None:
    evaluation = make_evaluation(1, seq=2, time=1e9, auc=None)
    push(api, attempt, 1, [make_step_line(1, loss=None), evaluation.model_dump_json()])
    page = api.viewer.get(f"/v1/jobs/{attempt.job_id}/metrics").json()
    document = api.anonymous.get("/openapi.json").json()
    schema = {"$ref": "#/components/schemas/MetricPage", "components": document["components"]}
    jsonschema_rs.validate(schema, page)
    assert [item["kind"] for item in page["items"]] == ["step", "evaluation"]
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schema, page | {"items": [{"kind": "step", "step": 1}]})


@on_both_databases
def test_the_noise_of_a_step_is_served_as_it_was_reported(api: Api, attempt: Attempt) -> None:
    noise = {
        "noise_scale": 900.0,
        "gsnr": {"bottom.layers.0": 0.01, "top.layers.1": None},
        "share_at_gamma": 0.5,
        "share_at_one": 0.25,
    }
    fields = json.loads(make_step_line(2))
    line_of_old_trainer = json.dumps({name: value for name, value in fields.items() if name not in noise})
    push(api, attempt, 1, [make_step_line(1, **noise), line_of_old_trainer])
    assert api.viewer.get(f"/v1/jobs/{attempt.job_id}").json()["progress"]["noise_scale"] is None
    first, second = api.viewer.get(f"/v1/jobs/{attempt.job_id}/metrics").json()["items"]
    assert {name: first[name] for name in noise} == noise
    assert {name: second[name] for name in noise} == dict.fromkeys(noise)


@on_both_databases
def test_what_a_run_derives_once_it_knows_its_rows_is_what_its_job_shows(api: Api, attempt: Attempt) -> None:
    def report(seq: int, **details: object) -> tuple[list[dict[str, Any]], list[tuple[int, float | None]]]:
        event = EventReport(seq=seq, time=1e9, name="decided", message="", details=details)
        assert push(api, attempt, seq, [event.model_dump_json()], stream="events").status_code == 200
        job = api.viewer.get(f"/v1/jobs/{attempt.job_id}").json()
        return job["derived"], [(stage["global_size"], stage["until_fraction"]) for stage in job["batch_stages"]]

    number = {"name": "batch.global_size", "value": 256, "unit": "", "reason": "for 900 training rows"}
    # Runs of earlier versions report no batch.
    assert report(1, derived=[number]) == ([number], [])
    schedule = [{"until_fraction": 0.5, "global_size": 64}]
    batch = {"global_size": 256, "schedule": schedule}
    decided = ([number], [(64, 0.5), (256, None)])
    assert report(2, derived=[number], batch=batch) == decided
    for seq, wrong in enumerate(([{"name": "share_size"}], "all", None, []), start=3):
        assert report(seq, derived=wrong, batch={"global_size": 128}) == decided
    for seq, wrong in enumerate(("all", None, {"global_size": "auto"}, {"global_size": 32}, {"unknown": 1}), start=7):
        assert report(seq, derived=[{**number, "value": 512}], batch=wrong) == decided
    rows = {job["id"]: job for job in api.viewer.get("/v1/jobs").json()["items"]}
    assert rows[attempt.job_id]["batch"] == 256


@on_both_databases
def test_large_events_come_in_shorter_pages_that_leave_none_out(api: Api, attempt: Attempt) -> None:
    details = {"text": "x" * 100_000}
    lines = [make_event_line(seq, details=details) for seq in range(1, 14)] + [make_event_line(14, message="y" * 10**6)]
    assert push(api, attempt, 1, lines, stream="events").status_code == 200
    path, cursor, pages = f"/v1/jobs/{attempt.job_id}/events", "0", list[list[dict[str, Any]]]()
    while cursor is not None:
        page = api.viewer.get(path, params={"cursor": cursor, "limit": 1000}).json()
        pages.append(page["items"])
        cursor = page["next_cursor"]
    assert len(pages) >= 3
    assert max(len(json.dumps(page[:-1])) for page in pages) < 600_000
    reported = [event["message"] for page in pages for event in page if event["name"] == "note"]
    assert reported == [*map(str, range(1, 14)), "y" * 10**6]


def test_a_push_has_at_most_as_many_lines_as_a_run_sends_at_once(api: Api, attempt: Attempt) -> None:
    lines = [make_step_line(seq) for seq in range(1, 1002)]
    refused = push(api, attempt, 1, lines)
    assert refused.status_code == 422
    assert [fault["field"] for fault in refused.json()["errors"]] == ["lines"]
    assert push(api, attempt, 1, lines[:1000]).json() == {"acknowledged_seq": 1000}


def make_event_line(seq: int, **changes: Any) -> str:
    report = EventReport(seq=seq, time=1e9 + seq, name="note", message=str(seq))
    return report.model_copy(update=changes).model_dump_json()


@on_both_databases
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pushes=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 6)), min_size=1, max_size=8))
def test_any_pushes_leave_every_line_up_to_the_acknowledged_one_once(api: Api, pushes: list[tuple[int, int]]) -> None:
    attempt = begin_attempt(api)
    num_known = 0
    for first, num_lines in pushes:
        response = push(api, attempt, first, [make_step_line(seq) for seq in range(first, first + num_lines)])
        if first <= num_known + 1:
            num_known = max(num_known, first + num_lines - 1)
            assert response.json() == {"acknowledged_seq": num_known}
        else:
            assert response.status_code == 409
    assert list_known_seqs(api, attempt) == list(range(1, num_known + 1))


@on_both_databases
def test_both_feeders_at_once_double_and_lose_nothing(api: Api, attempt: Attempt) -> None:
    job = get_job(api, attempt.job_id)
    launch = make_launch(job, attempt)
    spool = launch.run_directory.attempt(1).spool_file(0, "metrics")
    writer = SpoolWriter(spool)
    lines = [make_step_line(seq) for seq in range(1, 201)]
    for line in lines:
        writer.write(StepReport.model_validate_json(line))

    def tail(_: int) -> None:
        SpoolTail(api.services.database, api.services.telemetry).ingest_new_lines(job, attempt, launch)

    def push_from(first: int) -> int:
        return push(api, attempt, first, lines[first - 1 : first + 49]).status_code

    with ThreadPoolExecutor(6) as pool:
        pushed = pool.map(push_from, range(1, 200, 10))
        list(pool.map(tail, range(4)))
        assert set(pushed) <= {200, 409}
    assert list_known_seqs(api, attempt) == list(range(1, 201))


@on_both_databases
def test_an_unreadable_line_in_the_spool_becomes_an_event_and_holds_nothing_up(api: Api, attempt: Attempt) -> None:
    job = get_job(api, attempt.job_id)
    launch = make_launch(job, attempt)
    spool = launch.run_directory.attempt(1).spool_file(1, "metrics")
    spool.parent.mkdir(parents=True)
    spool.write_text(f"{make_step_line(1)}\nnonsense\n{make_step_line(3)}\n")
    tail = SpoolTail(api.services.database, api.services.telemetry)
    tail.ingest_new_lines(job, attempt, launch)
    assert list_known_seqs(api, attempt) == [1, 3]
    with spool.open("a") as file:
        file.write(f"{make_step_line(4)}\n{make_step_line(5)[:20]}")
    tail.ingest_new_lines(job, attempt, launch)
    assert list_known_seqs(api, attempt) == [1, 3, 4]
    events = api.viewer.get(f"/v1/jobs/{attempt.job_id}/events").json()["items"]
    assert next(e["message"] for e in events if e["name"] == "unreadable_report").startswith("line 2 of the metrics")


@on_sqlite
def test_readers_of_curves_that_never_read_hold_up_themselves_alone(api: Api, attempt: Attempt) -> None:
    layers = {f"layer.{number}": 0.5 for number in range(500)}
    for first in range(1, 1001, 250):
        lines = [make_step_line(seq, gsnr=layers) for seq in range(first, first + 250)]
        assert push(api, attempt, first, lines).status_code == 200
    path = f"/v1/jobs/{attempt.job_id}/metrics"
    whole = api.admin.get(path)
    with ExitStack() as stack:
        for _ in range(2):
            # Otherwise the kernel may receive the whole answer, which is at most 4 MiB.
            connection = stack.enter_context(connect(api.url, receive_bytes=4096))
            connection.send(make_head("GET", path, get_key(api.viewer.headers)))
            connection.wait_until_readable()
        third = stack.enter_context(connect(api.url))
        third.send(make_head("GET", path, get_key(api.viewer.headers)))
        assert api.admin.get(path).content == whole.content
        assert not third.is_readable()
    assert api.viewer.get(path).content == whole.content
