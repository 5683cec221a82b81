"""Times of schedules, and what stands for the placeholders of their documents."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from dlrm.config import ConfigError
from service.schedules.placeholders import Moment, NothingNewError, fill_document
from service.schedules.times import count_times, find_last, find_next, parse_zone

BERLIN = parse_zone("Europe/Berlin")
JOB = "job_01JAR8Z3M5T2Q7W9X4Y6V1N0KD"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fill(document: dict[str, Any], due: str, previous: str | None = None, job_id: str | None = None) -> dict[str, Any]:
    return fill_document(document, Moment(at(due), BERLIN, job_id, at(previous) if previous else None))


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("2026-03-27T12:00", "2026-03-28T01:30"),
        # The clock goes from 02:00 to 03:00: what does not exist comes at once after it.
        ("2026-03-28T12:00", "2026-03-29T01:00"),
        ("2026-10-24T12:00", "2026-10-25T00:30"),
        ("2026-10-25T00:30", "2026-10-26T01:30"),
    ],
)
def test_an_expression_is_of_the_clock_on_the_wall(after: str, expected: str) -> None:
    assert find_next("30 2 * * *", BERLIN, at(after)) == at(expected)


def test_the_last_of_missed_times_is_found_and_the_others_are_counted() -> None:
    start, now = at("2026-11-20T02:00"), at("2026-11-28T01:00")
    assert find_last("0 2 * * *", UTC, now) == at("2026-11-27T02:00")
    assert find_last("0 2 * * *", UTC, start) == start
    assert count_times("0 2 * * *", UTC, start, at("2026-11-27T02:00")) == 7
    assert count_times("0 2 * * *", UTC, start, start) == 0


@pytest.mark.parametrize("cron", ["0 2 * *", "0 2 * * * *", "60 2 * * *", "0 2 31 2 *", "daily", ""])
def test_what_is_no_expression_is_refused(cron: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        find_next(cron, UTC, at("2026-01-01"))


@pytest.mark.parametrize("name", ["Mars/Base", "../UTC", "", "Europe"])
def test_what_is_no_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="there is no time zone"):
        parse_zone(name)


def test_an_entry_is_repeated_for_every_day_that_has_ended_since_the_previous_job() -> None:
    document = {"data": {"train": ["base.tsv", "{day:%Y/%m/%d}/*.tsv"], "eval": ["{day}.tsv"]}}
    # 23:30 UTC is the next day in Berlin.
    filled = fill(document, "2026-11-28T23:30", previous="2026-11-26T01:00", job_id=JOB)
    assert filled["data"]["train"] == ["base.tsv", "2026/11/26/*.tsv", "2026/11/27/*.tsv", "2026/11/28/*.tsv"]
    assert filled["data"]["eval"] == ["2026-11-26.tsv", "2026-11-27.tsv", "2026-11-28.tsv"]
    assert fill(document, "2026-11-28T23:30")["data"]["eval"] == ["2026-11-28.tsv"]


def test_two_jobs_in_a_row_have_every_hour_once_even_where_the_clock_is_changed() -> None:
    document = {"data": {"train": ["{hour}"]}}
    moments = ["2026-10-25T00:10", "2026-10-25T01:50", "2026-10-25T02:00", "2026-10-25T05:59"]
    hours = [
        hour
        for previous, due in pairwise(moments)
        for hour in fill(document, due, previous=previous, job_id=JOB)["data"]["train"]
    ]
    assert hours == [f"2026-10-25T0{hour}" for hour in range(5)]
    with pytest.raises(NothingNewError):
        fill(document, "2026-10-25T05:59", previous="2026-10-25T05:01", job_id=JOB)


def test_the_previous_job_is_what_a_job_starts_from_and_the_first_one_starts_anew() -> None:
    run = {"warm_start": {"from": "{previous_job}", "optimizer_state": True}, "epochs": 1}
    document = {"name": "ads-{due:%Y%m%d}", "labels": {"after": "{previous_job}"}, "run": run}
    filled = fill(document, "2026-11-28T02:00", previous="2026-11-27T02:00", job_id=JOB)
    assert filled == {
        "name": "ads-20261128",
        "labels": {"after": JOB},
        "run": {"warm_start": {"from": JOB, "optimizer_state": True}, "epochs": 1},
    }
    first = fill(document, "2026-11-28T02:00")
    assert (first["run"]["warm_start"], first["labels"]) == (None, {"after": ""})
    assert document["run"] is run


def test_a_day_outside_of_data_and_too_many_days_are_refused_with_the_field() -> None:
    with pytest.raises(ConfigError) as caught:
        fill({"labels": {"day": "{day}"}}, "2026-11-28T02:00")
    assert caught.value.errors[0].field == "labels.day"
    with pytest.raises(ConfigError):
        fill({"data": {"train": ["{hour}"]}}, "2026-11-28T02:00", previous="2020-01-01T00:00", job_id=JOB)


def test_other_braces_stay() -> None:
    document = {"data": {"train": ["{a,b}/{x}.tsv"]}, "batch": {"global_size": 64}}
    assert fill(document, "2026-11-28T02:00") == document
