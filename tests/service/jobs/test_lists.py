"""Filters of the list of jobs."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from service.access.principal import Role
from service.store.job_rows import MAX_MESSAGE_CHARACTERS
from service.store.job_texts import select_containing
from service.store.models import Job, JobDocument, JobText
from tests.service.api import Api, make_document
from tests.service.databases import on_both_databases
from tests.service.jobs.test_deletion import make_pace
from tests.service.jobs.test_jobs_api import check_problem


@pytest.fixture(scope="module")
def jobs(shared_api: Api) -> dict[str, str]:
    """Ids of jobs, by name."""
    labels = {"ads-100%": {"team": "Ads"}, "feed_1": {"team": "feed", "place": "São Paulo"}, "feed-2": {}}
    return {
        name.replace("%", ""): shared_api.submit(name=name.replace("%", ""), labels={"behaviour": "wait", **own})["id"]
        for name, own in labels.items()
    }


def find(api: Api, **params: Any) -> set[str]:
    response = api.viewer.get("/v1/jobs", params=params)
    assert response.status_code == 200, response.text
    return {job["name"] for job in response.json()["items"]}


@on_both_databases
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("feed", {"feed_1", "feed-2"}),
        ("FEED", {"feed_1", "feed-2"}),
        ("d_1", {"feed_1"}),
        ("ADS", {"ads-100"}),
        ("ão pau", {"feed_1"}),
        ("0%", set()),
        ("%", set()),
        ("_", set()),
        ("f", {"feed_1", "feed-2"}),
        ("Sã", {"feed_1"}),
        ("ee", set()),
        ("eed", {"feed_1", "feed-2"}),
        ("tea", {"feed_1", "feed-2", "ads-100"}),
        ('"', set()),
        ('"feed', set()),
        ("feed OR ads", set()),
        ("\\", set()),
        ("/", set()),
        ("place", set()),
        ("' OR 1=1 --", set()),
    ],
)
def test_a_text_is_looked_for_in_names_ids_and_values_of_labels(
    shared_api: Api, jobs: dict[str, str], text: str, names: set[str]
) -> None:
    # The owner of all is "team". Fewer than three characters are looked for at the beginning of each part.
    assert jobs
    assert find(shared_api, q=text) == names


@on_both_databases
def test_a_part_of_an_id_finds_the_job(shared_api: Api, jobs: dict[str, str]) -> None:
    assert find(shared_api, q=jobs["feed-2"][-8:].lower()) == {"feed-2"}


@on_both_databases
def test_filters_hold_together(shared_api: Api, jobs: dict[str, str]) -> None:
    assert jobs
    assert find(shared_api, q="feed", label="team:feed") == {"feed_1"}
    assert find(shared_api, q="feed", state="RUNNING") == set()
    assert find(shared_api, q="feed", state=["RUNNING", "QUEUED"]) == {"feed_1", "feed-2"}


@on_both_databases
def test_jobs_are_found_by_the_time_of_their_submission(api: Api) -> None:
    before = datetime.now(UTC)
    names = ["a", "b", "c"]
    times = [datetime.fromisoformat(api.submit(name=name)["created_at"]) for name in names]
    assert find(api, created_after=before.isoformat()) == {"a", "b", "c"}
    assert find(api, created_after=times[1].isoformat()) == {"b", "c"}
    assert find(api, created_before=times[1].isoformat()) == {"a"}
    assert find(api, created_after=times[0].isoformat(), created_before=times[2].isoformat()) == {"a", "b"}
    assert find(api, created_after=datetime.now(UTC).isoformat()) == set()
    elsewhere = times[1].astimezone(tz=None).isoformat()
    assert find(api, created_after=elsewhere) == {"b", "c"}
    assert find(api, created_before="1970-01-01") == set()


@on_both_databases
def test_the_time_that_counts_is_that_of_the_job_and_not_that_of_its_id(api: Api) -> None:
    ids = [api.submit(name=name)["id"] for name in ("early", "late")]
    now = datetime.now(UTC)
    with api.services.database.write() as session:
        # The clock went back for half a minute between the id and the time of each.
        for job_id in ids:
            session.get_one(Job, job_id).created_at = now + timedelta(seconds=30)
    assert find(api, created_after=(now + timedelta(seconds=20)).isoformat()) == {"early", "late"}


@pytest.mark.parametrize("time", ["yesterday", "2026-13-01", "0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59Z", ""])
@pytest.mark.parametrize("name", ["created_after", "created_before"])
def test_what_is_no_time_is_named(shared_api: Api, name: str, time: str) -> None:
    response = shared_api.viewer.get("/v1/jobs", params={name: time})
    (fault,) = check_problem(response, 422, "invalid-request")["errors"]
    assert fault["field"] == name


@on_both_databases
def test_pages_of_several_states_are_in_order(api: Api) -> None:
    ids = [api.submit()["id"] for _ in range(6)]
    for job_id in ids[::2]:
        api.submitter.post(f"/v1/jobs/{job_id}/cancel")
    listed: list[str] = []
    params: dict[str, Any] = {"state": ["QUEUED", "CANCELLED", "RUNNING"], "limit": 2}
    while True:
        page = api.viewer.get("/v1/jobs", params=params).json()
        listed += [job["id"] for job in page["items"]]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
    assert listed == ids[::-1]


@on_both_databases
def test_an_item_of_a_list_is_short_however_much_there_is_to_say(api: Api) -> None:
    job_id = api.submit(name="retrain-daily", labels={"team": "ads", "place": "eu-west"})["id"]
    api.submitter.post(f"/v1/jobs/{job_id}/cancel")
    progress = {
        **{"phase": "training", "step": 123_456, "num_steps": 1_000_000, "done_fraction": 0.12345678901234567},
        **{"loss": 0.45123456789012345, "auc": 0.7512345678901234, "samples_per_second": 123456.78901234567},
        **{"eta_seconds": 12345.678901234567, "message": "m" * 1000, "noise_scale": 31_204.3, "global_size": 16_384},
    }
    with api.services.database.write() as session:
        job = session.get_one(Job, job_id)
        job.message, job.progress = "rank 3: the loss is not finite; " * 100, progress
        session.get_one(JobDocument, job_id).metrics = {f"metric_{number}": 0.5 for number in range(100)}
    response = api.viewer.get("/v1/jobs")
    (item,) = response.json()["items"]
    assert len(response.content) < 1000
    assert (len(item["message"]), item["message"][-1]) == (MAX_MESSAGE_CHARACTERS, "…")
    short = {**item, "message": "", "reason": "user_cancelled"}
    assert len(json.dumps(short, separators=(",", ":"))) < 700
    assert item["progress"]["samples_per_second"] == progress["samples_per_second"]
    details = api.viewer.get(f"/v1/jobs/{job_id}").json()
    assert (len(details["message"]), len(details["metrics"])) == (3200, 100)
    assert {name: details[name] for name in ("labels", "state", "created_at")} == {
        name: item[name] for name in ("labels", "state", "created_at")
    }


def test_the_final_figures_of_a_job_are_in_the_list(live_api: Api) -> None:
    job_id = live_api.submit(behaviour="succeed")["id"]
    job = live_api.wait_for(job_id, "SUCCEEDED")
    (item,) = live_api.viewer.get("/v1/jobs").json()["items"]
    assert (item["progress"]["auc"], job["metrics"]["auc"]) == (0.75, 0.75)
    assert item["has_warnings"] == job["has_warnings"] == bool(job["warnings"])


@on_both_databases
def test_jobs_are_found_by_the_time_of_their_end(api: Api) -> None:
    ids = {name: api.submit(name=name)["id"] for name in ("early", "late", "waiting")}
    ended = [
        datetime.fromisoformat(api.submitter.post(f"/v1/jobs/{ids[name]}/cancel").json()["finished_at"])
        for name in ("early", "late")
    ]
    assert find(api, finished_after=ended[0].isoformat()) == {"early", "late"}
    assert find(api, finished_after=ended[1].isoformat()) == {"late"}
    assert find(api, finished_before=ended[1].isoformat()) == {"early"}
    assert find(api, finished_before=ended[1].isoformat(), label="behaviour:wait", q="late") == set()


@on_both_databases
def test_what_many_jobs_have_is_found_as_what_few_have(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[dict[str, Any]] = [
        {"q": "feed"},
        {"q": "feed", "label": ["team:feed", "behaviour:wait"]},
        {"state": ["QUEUED", "CANCELLED"], "label": "team:feed", "q": "fe"},
        {"label": "team:feed", "finished_before": "2100-01-01"},
    ]
    for number, labels in enumerate(({"team": "feed"}, {"team": "ads"}, {"team": "feed", "place": "feed"})):
        job = api.submit(name=f"job-{number}", labels={"behaviour": "wait", **labels})
        if number:
            api.submitter.post(f"/v1/jobs/{job['id']}/cancel")
    expected = [{"job-0", "job-2"}, {"job-0", "job-2"}, {"job-0", "job-2"}, {"job-2"}]
    assert [find(api, **query) for query in queries] == expected
    monkeypatch.setattr("service.store.job_lists.FEW", 0)
    assert [find(api, **query) for query in queries] == expected


@on_both_databases
def test_labels_are_listed_with_the_number_of_jobs_that_the_sender_may_see(api: Api) -> None:
    for labels in ({"team": "ads"}, {"team": "ads", "stage": "a:b"}, {"team": "feed"}):
        api.submit(labels=labels)
    api.admin.post("/v1/jobs", json=make_document(labels={"team": "ads"}))
    other = api.make_client(api.services.keys.create("other", Role.SUBMITTER, owner="others").key)
    other.post("/v1/jobs", json=make_document(labels={"team": "secret"}))

    def list_labels(client: httpx.Client, **params: Any) -> list[tuple[str, str, int]]:
        page = client.get("/v1/labels", params=params).raise_for_status().json()
        assert page["next_cursor"] is None
        return [(item["name"], item["value"], item["num_jobs"]) for item in page["items"]]

    own = [("stage", "a:b", 1), ("team", "ads", 3), ("team", "feed", 1)]
    assert list_labels(api.viewer) == own
    assert list_labels(api.viewer, limit=1, name="stage") == own[:1]
    assert list_labels(other) == [("team", "secret", 1)]
    assert list_labels(api.admin, name="team") == [*own[1:], ("team", "secret", 1)]
    first = api.viewer.get("/v1/labels", params={"limit": 1}).json()
    assert first["next_cursor"] == "stage:a:b"
    rest = api.viewer.get("/v1/labels", params={"cursor": "stage:a:b"}).json()["items"]
    assert [item["value"] for item in rest] == ["ads", "feed"]
    assert check_problem(api.viewer.get("/v1/labels?cursor=team"), 422, "invalid-request")


@on_both_databases
def test_jobs_are_counted_by_what_a_list_can_be_narrowed_to(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for labels in ({"team": "ads", "stage": "a:b"}, {"team": "ads"}, {"team": "feed"}):
        api.submit(labels=labels)
    cancelled = api.submit(labels={"team": "ads"})["id"]
    api.submitter.post(f"/v1/jobs/{cancelled}/cancel")
    other = api.make_client(api.services.keys.create("other", Role.SUBMITTER, owner="others").key)
    other.post("/v1/jobs", json=make_document(name="theirs", labels={"team": "secret"}))

    def count(client: httpx.Client, **params: Any) -> dict[str, Any]:
        facets = client.get("/v1/facets", params=params).raise_for_status().json()
        named = {part: [tuple(item.values()) for item in facets[part]] for part in ("states", "owners")}
        labels = {item["name"]: [tuple(value.values()) for value in item["values"]] for item in facets["labels"]}
        return facets | named | {"labels": labels}

    everything = count(api.admin)
    assert (everything["num_jobs"], everything["is_exact"], everything["are_labels_exact"]) == (5, True, True)
    assert everything["states"] == [("QUEUED", 4), ("CANCELLED", 1)]
    assert everything["owners"] == [("team", 4), ("others", 1)]
    assert everything["labels"] == {"stage": [("a:b", 1)], "team": [("ads", 3), ("feed", 1), ("secret", 1)]}
    # A filter does not count in its own part, so that one sees what else could be chosen.
    queued = count(api.admin, state=["QUEUED", "RUNNING"], owner="team")
    assert (queued["num_jobs"], queued["states"]) == (3, [("QUEUED", 3), ("CANCELLED", 1)])
    assert queued["owners"] == [("team", 3), ("others", 1)]
    assert queued["labels"]["team"] == [("ads", 2), ("feed", 1)]
    own = count(api.viewer, label="team:ads")
    assert (own["num_jobs"], own["states"], own["owners"]) == (3, [("QUEUED", 2), ("CANCELLED", 1)], [("team", 3)])
    assert count(api.viewer)["labels"]["team"] == [("ads", 3), ("feed", 1)]
    assert count(api.viewer, q="theirs") == {**count(api.viewer, owner="nobody"), "owners": []}
    before = datetime.now(UTC).isoformat()
    assert (
        count(api.viewer, created_after=before)["num_jobs"],
        count(api.viewer, created_before=before)["num_jobs"],
    ) == (0, 4)
    monkeypatch.setattr("service.store.job_facets.MAX_COUNTED", 2)
    newest = count(api.viewer, q="team")
    assert (newest["num_jobs"], newest["is_exact"], newest["are_labels_exact"]) == (2, False, False)
    assert (count(api.viewer)["num_jobs"], count(api.viewer)["labels"]["team"]) == (4, [("ads", 1), ("feed", 1)])


@on_both_databases
def test_the_list_has_the_batch_unless_it_is_undecided_and_the_optimizer(api: Api) -> None:
    stated = api.submit(dense_optimizer={"name": "lamb"})
    undecided = api.submit(batch={})
    rows = {job["id"]: (job["batch"], job["optimizer"]) for job in api.viewer.get("/v1/jobs").json()["items"]}
    assert rows[stated["id"]] == (64, "lamb") == (stated["batch"], stated["optimizer"])
    assert rows[undecided["id"]][0] is None


@on_both_databases
def test_a_deleted_job_is_not_found_by_its_text_any_more(api: Api) -> None:
    job_id = api.submit(name="doomed")["id"]
    api.submitter.post(f"/v1/jobs/{job_id}/cancel")
    assert api.submitter.delete(f"/v1/jobs/{job_id}").status_code == 202
    api.services.deletions.finish_deletions(make_pace())
    assert find(api, q="doomed") == set()
    with api.services.database.read() as session:
        assert session.scalar(select(func.count()).select_from(JobText)) == 0
        assert session.scalar(select_containing(session, "doomed")) is None
