"""Comparison of jobs over the API: settings, figures, and seeds as one method."""

from typing import Any

import pytest
from scipy import stats
from sqlalchemy import update

from service.access.principal import Role
from service.store.models import Job, JobDocument
from service.times import now
from tests.service.api import Api
from tests.service.jobs.keys import make_key
from tests.service.jobs.test_jobs_api import check_problem


def add_job(api: Api, auc: float | None = None, **changes: Any) -> str:
    """Submit a job; one with an AUC has succeeded."""
    job_id = api.submit(**changes)["id"]
    if auc is not None:
        metrics = {"auc": auc, "auc_standard_error": 0.002, "log_loss": 1 - auc}
        values = {"state": "SUCCEEDED", "started_at": now(), "finished_at": now()}
        with api.services.database.write() as session:
            session.execute(update(Job).where(Job.id == job_id).values(values))
            session.execute(update(JobDocument).where(JobDocument.job_id == job_id).values(metrics=metrics))
    return job_id


def compare(api: Api, *ids: str) -> dict[str, Any]:
    response = api.viewer.get("/v1/compare", params={"ids": ",".join(ids)})
    assert response.status_code == 200, response.text
    return response.json()


def test_jobs_that_differ_in_seeds_alone_are_one_group_with_students_interval(api: Api) -> None:
    aucs = [0.70, 0.72, 0.74]
    seeds = [
        add_job(
            api,
            auc,
            name=f"seed-{seed}",
            priority=seed,
            run={"seed": seed},
            labels={"behaviour": "x", "seed": str(seed)},
        )
        for seed, auc in enumerate(aucs)
    ]
    other = add_job(api, 0.75, labels={"behaviour": "x"}, batch={"global_size": 128}, precision="bf16")
    found = compare(api, seeds[0], other, *seeds[1:])
    assert [(job["id"], job["group"], job["seed"]) for job in found["jobs"]] == [
        (seeds[0], 0, 0),
        (other, 1, 0),
        (seeds[1], 0, 1),
        (seeds[2], 0, 2),
    ]
    assert {setting["field"]: setting["values"] for setting in found["settings"]} == {
        "batch.global_size": [64, 128],
        "precision": ["fp32", "bf16"],
    }
    figures = {figure["name"]: figure for figure in found["figures"]}
    of_seeds, single = figures["auc"]["values"]
    low, high = stats.t.interval(0.95, 2, loc=0.72, scale=stats.sem(aucs))
    assert of_seeds == {
        "mean": pytest.approx(0.72),
        "low": pytest.approx(low),
        "high": pytest.approx(high),
        "source": "seeds",
        "num_jobs": 3,
    }
    assert (single["source"], single["high"]) == ("rows", pytest.approx(0.75 + 1.95996 * 0.002))
    assert (figures["auc"]["best"], figures["log_loss"]["best"]) == (1, 1)
    assert figures["seconds"]["values"][0]["num_jobs"] == 3
    assert "calibration" not in figures


def test_a_label_that_is_no_seed_and_the_same_seed_again_make_groups_of_their_own(api: Api) -> None:
    ids = [
        add_job(api, 0.7, labels={"set": "a"}),
        add_job(api, 0.7, labels={"set": "b"}),
        add_job(api, 0.7, labels={"set": "a"}),
        add_job(api, None, labels={"set": "a"}, run={"seed": 1}),
    ]
    found = compare(api, *ids)
    assert [job["group"] for job in found["jobs"]] == [0, 1, 2, 0]
    assert found["settings"] == []
    # The queued job has no figures.
    assert found["figures"][0]["values"][0]["num_jobs"] == 1


def test_a_section_that_one_job_has_off_is_one_setting_unless_its_fields_differ(api: Api) -> None:
    reduced = [{"gamma": gamma} for gamma in (0.1, 0.2)]
    ids = [add_job(api, variance_reduction=section) for section in (None, *reduced)]
    found = {item["field"]: item["values"] for item in compare(api, *ids[:2])["settings"]}
    assert found == {"variance_reduction": ["off", "on"]}
    found = {item["field"]: item["values"] for item in compare(api, *ids)["settings"]}
    assert found == {"variance_reduction": ["off", "on", "on"], "variance_reduction.gamma": [None, 0.1, 0.2]}


def test_only_some_visible_jobs_are_compared(api: Api) -> None:
    job_id = add_job(api)
    for ids in (job_id, f"{job_id},{job_id}", ",".join(f"job_{number}" for number in range(21))):
        refused = api.viewer.get("/v1/compare", params={"ids": ids})
        assert check_problem(refused, 422, "invalid-request")["errors"][0]["field"] == "ids"
    with make_key(api, "other", Role.VIEWER) as other:
        check_problem(other.get("/v1/compare", params={"ids": f"{job_id},job_0"}), 404, "not-found")


def test_the_same_seeds_are_compared_pair_by_pair_and_others_by_welch(api: Api) -> None:
    aucs = {64: [0.70, 0.72, 0.74], 128: [0.712, 0.733, 0.751], 256: [0.71, 0.75]}
    ids = [
        add_job(api, auc, batch={"global_size": size}, run={"seed": seed})
        for size, own in aucs.items()
        for seed, auc in enumerate(own)
    ]
    found = compare(api, *ids)
    figure = next(figure for figure in found["figures"] if figure["name"] == "auc")
    assert figure["better"] == "higher"
    none, paired, welch = figure["differences"]
    assert none is None
    # Both differences hold together with 95 %.
    interval = stats.ttest_rel(aucs[128], aucs[64]).confidence_interval(1 - 0.05 / 2)
    assert (paired["low"], paired["high"]) == (pytest.approx(interval.low), pytest.approx(interval.high))
    assert (paired["source"], paired["is_better"], paired["is_certain"]) == ("paired seeds", True, True)
    assert (welch["source"], welch["is_certain"]) == ("seeds", False)
    verdict = found["verdict"]
    assert (verdict["best"], verdict["other"], verdict["is_certain"]) == (1, 0, True)
    assert verdict["sentence"].startswith("B has the best AUC of 3, 0.7320: 0.0120 above A, which is more than its")
    assert "The next one, C, is 0.0020 away, which is within its uncertainty." in verdict["sentence"]
    assert "3 pairs of jobs with the same seed" in verdict["basis"]


def test_single_jobs_are_judged_by_their_evaluation_rows_and_the_advice_is_seeds(api: Api) -> None:
    base, better = add_job(api, 0.70, name="base"), add_job(api, 0.72, name="fast", precision="bf16")
    close = add_job(api, 0.703, name="close", data={"train": ["day_0.tsv"]})
    verdict = compare(api, base, better)["verdict"]
    assert verdict["sentence"] == (
        "B (fast) has the better AUC, 0.7200: 0.0200 above A (base), which is more than its uncertainty."
    )
    half = 1.959964 * 0.002 * 2**0.5
    assert f"{0.02 - half:+.4f} to {0.02 + half:+.4f}, by the choice of the evaluation rows" in verdict["basis"]
    assert verdict["advice"].startswith("To rule out a lucky seed")
    verdict = compare(api, base, close)["verdict"]
    assert (verdict["best"], verdict["is_certain"]) == (1, False)
    assert "Their data differ (data.train)" in verdict["basis"]
    # The interval is 1.85 times the difference, and its width falls with the root of the rows.
    assert verdict["advice"].endswith("or evaluate on about 4 times as many rows.")


def test_nothing_is_judged_before_two_methods_have_succeeded(api: Api) -> None:
    ended, queued = add_job(api, 0.7), add_job(api, precision="bf16")
    found = compare(api, ended, queued)
    assert (found["verdict"]["best"], found["verdict"]["is_certain"]) == (None, None)
    assert found["verdict"]["sentence"].startswith("Nothing can be judged yet: fewer than two methods")
    assert [(job["owner"], job["progress"]["step"]) for job in found["jobs"]] == [("team", None), ("team", None)]
    assert [job["progress"]["done_fraction"] for job in found["jobs"]] == [1.0, None]
    [precision] = found["settings"]
    assert precision["meaning"].startswith("Number format of the matrix products")
