"""Tables of the settings and figures of many jobs."""

from typing import Any

import pytest
from scipy import stats
from sqlalchemy import update

from service.access.principal import Role
from service.compare import results
from service.store.models import JobDocument
from tests.service.api import Api
from tests.service.compare.test_compare import add_job, compare
from tests.service.databases import on_both_databases
from tests.service.jobs.keys import make_key
from tests.service.jobs.test_jobs_api import check_problem
from tests.service.query_plans import check_plans, record_statements

pytestmark = on_both_databases


def read(api: Api, **query: Any) -> dict[str, Any]:
    response = api.viewer.get("/v1/results", params=query)
    assert response.status_code == 200, response.text
    return response.json()


def test_differing_settings_labels_and_figures_come_as_columns(api: Api) -> None:
    add_job(api, 0.9, labels={"sweep": "other"}, name="other")
    ids = [
        add_job(api, auc, labels={"sweep": "rates", "trial": str(size)}, batch={"global_size": size})
        for size, auc in ((64, 0.7), (128, 0.72), (256, None))
    ]
    found = read(api, label="sweep:rates")
    assert (found["ids"], found["states"]) == (ids[::-1], ["QUEUED", "SUCCEEDED", "SUCCEEDED"])
    columns = {(column["kind"], column["name"]): column["values"] for column in found["columns"]}
    assert columns["setting", "batch.global_size"] == [256, 128, 64]
    assert columns["label", "trial"] == ["256", "128", "64"]
    assert columns["figure", "auc"] == [None, 0.72, 0.7]
    assert [name for kind, name in columns if kind == "setting"] == ["batch.global_size"]
    assert ("label", "sweep") not in columns
    assert ("figure", "calibration") not in columns
    assert found["num_equal_settings"] > 50
    assert found["has_more"] is False
    assert read(api, q="other")["names"] == ["other"]
    shorter = read(api, label="sweep:rates", limit=2)
    assert (shorter["ids"], shorter["has_more"]) == (ids[:0:-1], True)


def test_seeds_of_one_method_have_a_mean_with_students_interval(api: Api) -> None:
    aucs = [0.70, 0.72, 0.74]
    for seed, auc in enumerate(aucs):
        add_job(api, auc, labels={"sweep": "rates", "sweep-trial": f"key-{seed}"}, run={"seed": seed})
    add_job(api, 0.6, labels={"sweep": "rates", "sweep-trial": "key"}, precision="bf16")
    found = read(api, label="sweep:rates")
    assert found["groups"] == [0, 1, 1, 1]
    [mean] = next(column["means"] for column in found["columns"] if column["name"] == "auc")
    low, high = stats.t.interval(0.95, 2, loc=0.72, scale=stats.sem(aucs))
    assert mean == {
        "group": 1,
        "mean": pytest.approx(0.72),
        "low": pytest.approx(low),
        "high": pytest.approx(high),
        "num_jobs": 3,
    }
    assert [job["group"] for job in compare(api, *found["ids"])["jobs"]] == found["groups"]


def test_a_repeated_seed_is_no_second_sample_of_a_mean(api: Api) -> None:
    for labels in ({"sweep-trial": "a"}, {"sweep-trial": "b"}, {}):
        add_job(api, 0.72, labels={"sweep": "rates", **labels})
    aucs = [0.72, 0.74]
    add_job(api, aucs[1], labels={"sweep": "rates"}, run={"seed": 1})
    add_job(api, 0.6, labels={"sweep": "rates"}, precision="bf16")
    found = read(api, label="sweep:rates")
    # Newest first: the two seeds, and each further job of seed 0 by itself.
    assert found["groups"] == [0, 1, 1, 2, 3]
    [mean] = next(column["means"] for column in found["columns"] if column["name"] == "auc")
    low, high = stats.t.interval(0.95, 1, loc=0.73, scale=stats.sem(aucs))
    assert (mean["group"], mean["num_jobs"]) == (1, 2)
    assert (mean["low"], mean["high"]) == (pytest.approx(low), pytest.approx(high))
    assert [job["group"] for job in compare(api, *found["ids"])["jobs"]] == found["groups"]


def test_each_figure_says_which_values_are_better(api: Api) -> None:
    job_id = add_job(api, 0.7)
    recalls = {"recall_at_10": 0.6, "ndcg_at_2": 0.2, "recall_at_2": 0.3}
    metrics = {"auc": 0.7, "log_loss": 0.4, "calibration": 1.1, "grouped_auc": 0.6, **recalls, "train_auc": 0.8}
    with api.services.database.write() as session:
        session.execute(update(JobDocument).where(JobDocument.job_id == job_id).values(metrics=metrics))
    better = {column["name"]: column["better"] for column in read(api)["columns"]}
    expected = {"auc": "higher", "log_loss": "lower", "calibration": "nearer to 1", "train_auc": None}
    assert {name: better[name] for name in expected} == expected
    recalls_of = {figure["name"]: figure["better"] for figure in compare(api, job_id, add_job(api, 0.6))["figures"]}
    for found in (better, recalls_of):
        within_groups = [(name, found[name]) for name in found if name.startswith(("grouped", "recall", "ndcg"))]
        expected_names = ["grouped_auc", "recall_at_2", "recall_at_10", "ndcg_at_2"]
        assert within_groups == [(name, "higher") for name in expected_names]


def test_only_visible_jobs_are_in_a_table(api: Api) -> None:
    add_job(api, labels={"sweep": "rates"})
    with make_key(api, "other", Role.VIEWER) as other:
        assert other.get("/v1/results?label=sweep:rates").json()["ids"] == []
    assert len(api.admin.get("/v1/results?label=sweep:rates").json()["ids"]) == 1
    check_problem(api.viewer.get("/v1/results?label=sweep"), 422, "invalid-request")


def test_a_table_is_bounded_however_long_documents_are(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [f"day_{number % 2}.tsv" for number in range(50)]
    for number in range(3):
        add_job(api, data={"train": files[number:]}, labels={"sweep": "rates", f"own-{number}": "x"})
    monkeypatch.setattr(results, "MAX_DOCUMENT_CHARACTERS", 1)
    found = read(api, label="sweep:rates")
    assert (len(found["ids"]), found["has_more"]) == (1, True)
    monkeypatch.setattr(results, "MAX_DOCUMENT_CHARACTERS", 2**24)
    monkeypatch.setattr(results, "MAX_COLUMNS", 2)
    found = read(api, label="sweep:rates")
    assert (len(found["ids"]), found["num_left_out"]) == (3, 2)
    monkeypatch.setattr(results, "MAX_COLUMNS", 10)
    columns = {column["name"]: column["values"] for column in read(api, label="sweep:rates")["columns"]}
    assert all(len(value) == results.MAX_TEXT_CHARACTERS for value in columns["data.train"])
    assert columns["own-1"] == [None, "x", None]


def test_a_table_is_found_by_indexes(api: Api) -> None:
    add_job(api, labels={"sweep": "rates"})
    with record_statements(api.services.database) as statements:
        read(api, label="sweep:rates")
    check_plans(api.services.database, statements)
