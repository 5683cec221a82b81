"""Curves of any length: levels that agree with a reference, peaks, parts of a curve, and what retention leaves."""

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from dlrm.record import StartReport, StepReport
from service.access.principal import Role
from service.client import Client
from service.reports import rollups
from service.reports.repository import ReportRepository
from service.store.models import Attempt
from service.store.removal import RemovalRepository
from tests.made_reports import make_evaluation, make_step
from tests.service.api import TEAM, Api
from tests.service.databases import on_both_databases
from tests.service.reports.attempts import begin_next_attempt, push_reports


def begin(api: Api) -> Attempt:
    return begin_next_attempt(api, api.submit()["id"])


def get_training(api: Api, job_id: str, **query: Any) -> dict[str, Any]:
    response = api.viewer.get(f"/v1/jobs/{job_id}/curves", params={"names": "loss", **query})
    assert response.status_code == 200, response.text
    return response.json()["training"]


def store(api: Api, attempt: Attempt, steps: Sequence[StepReport], chunk: int) -> None:
    for first in range(0, len(steps), chunk):
        with api.services.database.write() as session:
            ReportRepository(session).add_steps(attempt.job_id, attempt.number, steps[first : first + chunk])


@on_both_databases
@pytest.mark.parametrize("num_steps", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_one_outlier_of_a_long_run_is_the_largest_value_at_every_resolution(api: Api, num_steps: int) -> None:
    attempt, outlier = begin(api), num_steps * 5 // 8
    steps = [make_step(number, loss=1e6 if number == outlier else 0.5) for number in range(1, num_steps + 1)]
    store(api, attempt, steps, 20_000)
    for resolution in (1, 7, 50, 500, 2000):
        training = get_training(api, attempt.job_id, resolution=resolution)
        assert resolution / 2 <= len(training["steps"]) <= resolution
        loss = training["curves"]["loss"]
        point = next(number for number, step in enumerate(training["steps"]) if step >= outlier)
        assert [value for value in loss["max"] if value != 0.5] == [1e6]
        assert loss["max"][point] == 1e6
        assert set(loss["min"]) == {0.5}


def list_expected(losses: dict[int, float | None], ends: Sequence[int], width: int) -> dict[str, list[Any]]:
    """Compute the statistics of points in plain Python, rounded as the service does. ends: last steps of points."""
    expected: dict[str, list[Any]] = {"min": [], "max": [], "mean": [], "last": []}
    before = 0
    for end in ends:
        begin = max(before, (end - 1) // width * width)
        values = [losses[step] for step in range(begin + 1, end + 1) if step in losses]
        known = [value for value in values if value is not None]
        expected["min"].append(min(known, default=None))
        expected["max"].append(max(known, default=None))
        expected["mean"].append(math.fsum(known) / len(known) if known else None)
        expected["last"].append(values[-1])
        before = end
    return expected


@pytest.mark.parametrize("resolution", [1, 3, pytest.param(20, marks=on_both_databases), 300])
def test_points_of_any_level_agree_with_plain_sums(api: Api, monkeypatch: pytest.MonkeyPatch, resolution: int) -> None:
    # So few buckets that a short curve has three levels.
    monkeypatch.setattr(rollups, "MIN_BUCKETS", 1)
    choose = random.Random(resolution)
    attempt = begin(api)
    job_id, starts = attempt.job_id, [0, 1013, 777, 1500]
    losses: dict[int, float | None] = {}
    for start in starts:
        if start:
            attempt = begin_next_attempt(api, job_id)
        losses = {step: loss for step, loss in losses.items() if step <= start}
        push_reports(api, attempt, StartReport(step=start, evaluated_step=0))
        steps = [
            make_step(step, loss=None if choose.random() < 0.2 else choose.uniform(-5, 5))
            for step in range(start + 1, start + 3000)
        ]
        losses |= {step.step: step.loss for step in steps}
        first = 0
        while first < len(steps):
            chunk = choose.randint(1, 1500)
            store(api, attempt, steps[first : first + chunk], chunk)
            first += chunk
    training = get_training(api, job_id, resolution=resolution)
    width, ends = training["steps_per_point"], training["steps"]
    last = starts[-1] + 2999
    cuts = {777, 1500}
    assert ends == sorted({*range(width, last, width), last} | cuts)
    expected = list_expected(losses, ends, width)
    for statistic, values in expected.items():
        shown = training["curves"]["loss"][statistic]
        assert [value is None for value in shown] == [value is None for value in values]
        known = [value for value in values if value is not None]
        assert [value for value in shown if value is not None] == pytest.approx(known, rel=1e-6), statistic


@on_both_databases
def test_a_curve_that_is_appended_to_is_the_curve_that_is_read_at_once(api: Api) -> None:
    attempt = begin(api)
    known: list[tuple[int, float]] = []
    for first in range(1, 1000, 90):
        store(api, attempt, [make_step(number) for number in range(first, min(first + 90, 1001))], 90)
        since = known[-1][0] if known else 0
        training = get_training(api, attempt.job_id, resolution=40, since=since)
        width = training["steps_per_point"]
        kept = [point for point in known if point[0] <= since // width * width]
        known = kept + list(zip(training["steps"], training["curves"]["loss"].get("mean", []), strict=False))
        whole = get_training(api, attempt.job_id, resolution=40)
        if whole["steps_per_point"] == 32:
            assert [step for step, _ in known][-3:] == whole["steps"][-3:]
    assert get_training(api, attempt.job_id, resolution=40, since=1000)["steps"] == []
    assert get_training(api, attempt.job_id, resolution=40, since=992)["steps"] == [1000]
    assert get_training(api, attempt.job_id, resolution=40, since=999)["steps"] == [1000]


@on_both_databases
def test_a_part_of_a_curve_is_read_finer_with_the_values_of_the_whole(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollups, "MIN_BUCKETS", 1)
    attempt = begin(api)
    losses: dict[int, float | None] = {step: 1 / step for step in range(1, 5001)}
    store(api, attempt, [make_step(step) for step in losses], 5000)
    push_reports(api, attempt, *(make_evaluation(step) for step in range(100, 5001, 100)))
    assert get_training(api, attempt.job_id, resolution=20)["steps_per_point"] == 256
    for since, until, width in ((2000, 2600, 32), (3, 17, 1), (0, 512, 32), (4900, 90_000, 8)):
        part = get_training(api, attempt.job_id, resolution=20, since=since, until=until)
        first, last = since // width * width, min(-(-until // width) * width, 5000)
        assert part["steps_per_point"] == width
        assert part["steps"] == sorted({*range(first + width, last, width), last})
        expected = list_expected(losses, part["steps"], width)
        for statistic, values in part["curves"]["loss"].items():
            assert values == pytest.approx(expected[statistic], rel=1e-6)
    query = {"names": "auc", "resolution": 20, "since": 1000, "until": 2000}
    evaluation = api.viewer.get(f"/v1/jobs/{attempt.job_id}/curves", params=query).json()["evaluation"]
    assert (evaluation["steps_per_point"], evaluation["steps"]) == (1, [*range(1100, 2001, 100)])
    assert get_training(api, attempt.job_id, since=5000, until=6000)["steps"] == []


@on_both_databases
def test_points_have_the_time_of_their_last_step(api: Api) -> None:
    attempt = begin(api)
    steps = [make_step(step, time=1_764_320_000.1234 + step) for step in range(1, 65)]
    store(api, attempt, steps, 64)
    push_reports(api, attempt, make_evaluation(64))
    times: dict[int, list[float]] = {}
    for resolution in (64, 4):
        query = {"names": "loss,num_samples,time", "resolution": resolution}
        curves = api.viewer.get(f"/v1/jobs/{attempt.job_id}/curves", params=query).json()
        assert curves["evaluation"] is None
        assert curves["training"]["curves"]["time"].keys() == {"last"}
        times[resolution] = curves["training"]["curves"]["time"]["last"]
    assert times[64] == [1_764_320_000.123 + step for step in range(1, 65)]
    assert times[4] == times[64][15::16]
    for names, kinds in (
        ("auc,time", {"evaluation"}),
        ("time", {"training", "evaluation"}),
        ("gsnr.a,time", {"training"}),
    ):
        curves = api.viewer.get(f"/v1/jobs/{attempt.job_id}/curves", params={"names": names}).json()
        assert {kind for kind in ("training", "evaluation") if curves[kind]} == kinds
        if "evaluation" in kinds:
            assert curves["evaluation"]["curves"]["time"]["last"] == [1_000_000_001]


@on_both_databases
def test_single_steps_have_their_values_alone_and_seven_digits(api: Api) -> None:
    attempt = begin(api)
    gsnr = {"top": 1 / 3, "bottom": None}
    push_reports(api, attempt, make_step(1, loss=2 / 3, gsnr=gsnr, global_size=16_777_217, dropped=True))
    response = api.viewer.get(
        f"/v1/jobs/{attempt.job_id}/curves", params={"names": "loss,gsnr,global_size,dropped,noise_scale,auc"}
    )
    assert response.json() == {
        "training": {
            "steps_per_point": 1,
            "steps": [1],
            "curves": {
                "loss": {"last": [0.6666667]},
                "gsnr.top": {"last": [0.3333333]},
                "gsnr.bottom": {"last": [None]},
                "global_size": {"last": [16_777_217]},
                "dropped": {"last": [1]},
                "noise_scale": {"last": [None]},
            },
        },
        "evaluation": {"steps_per_point": 1, "steps": [], "curves": {"auc": {"last": []}}},
        "starts": [],
    }
    chosen = get_training(api, attempt.job_id, names="gsnr.bottom")
    assert chosen["curves"] == {"gsnr.bottom": {"last": [None]}}


@on_both_databases
def test_figures_within_groups_and_of_tasks_are_curves_by_their_own_names(api: Api) -> None:
    attempt = begin(api)
    tasks = {"buy.auc": 2 / 3, "buy.calibration": None}
    # The last two are of another program: they must not hide the job's own.
    first = make_evaluation(1, grouped={"grouped_auc": 0.625, "recall_at_5": 0.5, "auc": 0.1, "time": 5.0}, tasks=tasks)
    push_reports(api, attempt, first, make_evaluation(2), make_evaluation(3, tasks={"buy.auc": 0.75, "read.rmse": 8.0}))
    path = f"/v1/jobs/{attempt.job_id}"
    items = api.viewer.get(f"{path}/metrics").json()["items"]
    assert [(item["grouped"], item["tasks"]) for item in items] == [
        (first.grouped, tasks),
        (None, None),
        (None, {"buy.auc": 0.75, "read.rmse": 8.0}),
    ]
    evaluation = api.viewer.get(f"{path}/curves", params={"names": "grouped,tasks"}).json()["evaluation"]
    assert evaluation["steps"] == [1, 2, 3]
    assert evaluation["curves"] == {
        "grouped_auc": {"last": [0.625, None, None]},
        "recall_at_5": {"last": [0.5, None, None]},
        "buy.auc": {"last": [0.6666667, None, 0.75]},
        "buy.calibration": {"last": [None, None, None]},
        "read.rmse": {"last": [None, None, 8]},
    }
    # A point of several evaluations has the last one's.
    names = {"names": "auc,tasks,grouped", "resolution": 2}
    coarse = api.viewer.get(f"{path}/curves", params=names).json()["evaluation"]
    assert coarse["curves"]["auc"]["last"][0] == make_evaluation(2).auc
    assert (coarse["steps"], coarse["curves"]["buy.auc"]["last"]) == ([2, 3], [None, 0.75])


def test_a_name_that_is_no_curve_is_refused_with_those_that_are(api: Api) -> None:
    job_id = begin(api).job_id
    refused = api.viewer.get(f"/v1/jobs/{job_id}/curves", params={"names": "loss,lost"})
    assert refused.status_code == 422
    (fault,) = refused.json()["errors"]
    assert fault["field"] == "names"
    assert "'lost'" in fault["message"]
    assert {"loss", "auc", "gsnr.LAYER"} <= set(fault["valid"].split(", "))


@on_both_databases
def test_many_evaluations_become_points_with_their_peaks(api: Api) -> None:
    attempt = begin(api)
    push_reports(
        api, attempt, *(make_evaluation(step, auc=0.9 if step == 130 else 0.5) for step in range(10, 2001, 10))
    )
    response = api.viewer.get(f"/v1/jobs/{attempt.job_id}/curves", params={"names": "auc", "resolution": 50})
    evaluation = response.json()["evaluation"]
    assert evaluation["steps_per_point"] == 64
    assert evaluation["steps"][-1] == 2000
    assert [value for value in evaluation["curves"]["auc"]["max"] if value != 0.5] == [0.9]


@on_both_databases
def test_curves_outlive_the_reports_of_their_steps_which_go_in_pieces(api: Api) -> None:
    attempt = begin(api)
    job_id = attempt.job_id
    store(api, attempt, [make_step(number) for number in range(1, 1001)], 1000)
    push_reports(api, attempt, make_evaluation(1000))
    before = get_training(api, job_id, resolution=40)
    page = api.viewer.get(f"/v1/jobs/{job_id}/metrics", params={"limit": 2}).json()
    assert (len(page["items"]), page["are_steps_removed"]) == (2, False)
    done: list[list[str]] = []
    while not done or not done[-1]:
        with api.services.database.write() as session:
            done.append(RemovalRepository(session).remove_points([job_id], 400))
        page = api.viewer.get(f"/v1/jobs/{job_id}/metrics").json()
        assert page["are_steps_removed"]
    assert done == [[], [], [job_id]]
    assert [(item["kind"], item["step"]) for item in page["items"]] == [("evaluation", 1000)]
    assert get_training(api, job_id, resolution=40) == before
    fine = get_training(api, job_id, resolution=2000)
    assert fine["steps"] == [*range(16, 1000, 16), 1000]
    assert "max" in fine["curves"]["loss"]


@on_both_databases
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.7e308, 1e-310])
def test_numbers_that_no_sum_can_hold_are_stored_without_harm(api: Api, value: float) -> None:
    attempt = begin(api)
    steps = [make_step(number, loss=value, table_learning_rate=value) for number in range(1, 41)]
    store(api, attempt, steps, 40)
    expected = 0 if abs(value) < 1 else None
    training = get_training(api, attempt.job_id, names="loss,table_learning_rate", resolution=2)
    for curve in training["curves"].values():
        assert curve["mean"] == curve["max"] == [expected] * len(training["steps"])
    assert [item["loss"] for item in api.viewer.get(f"/v1/jobs/{attempt.job_id}/metrics").json()["items"]] == (
        [expected] * 40
    )


@on_both_databases
def test_a_number_of_more_than_64_bits_is_a_bad_line(api: Api) -> None:
    response = push_reports(api, begin(api), make_step(1, num_samples=2**63))
    assert response.status_code == 422
    assert "num_samples: Input should be less than 9223372036854775808" in response.text


def test_the_client_reads_curves_by_their_names(api: Api) -> None:
    attempt = begin(api)
    push_reports(api, attempt, StartReport(step=0, evaluated_step=0), *(make_step(step) for step in range(1, 65)))
    secret = api.services.keys.create("curves", Role.VIEWER, owner=TEAM).key
    with Client(api.url, secret) as client:
        curves = client.curves(attempt.job_id, ("num_samples", "loss"), resolution=4, since=20)
    assert curves.training is not None
    assert curves.evaluation is None
    assert (curves.training.steps_per_point, curves.training.steps) == (16, [32, 48, 64])
    assert curves.training.curves["num_samples"].last == [64 * 32, 64 * 48, 64 * 64]
    assert curves.training.curves["loss"].max == [0.05882353, 0.03030303, 0.02040816]
    assert [start.attempt for start in curves.starts] == [1]
