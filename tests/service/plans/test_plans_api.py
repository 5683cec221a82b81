"""`POST /v1/plans`, with the real planning program."""

import json
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dlrm.config import JobConfig, ModelConfig
from service.access.principal import Role
from service.plans.plan_process import LIMITS, MAX_AT_ONCE, MAX_WAITING, Planner
from service.plans.service import compute_learning_rates
from tests.patience import PATIENCE_SECONDS, wait_until
from tests.service.advice.test_advice_api import set_job
from tests.service.api import Api, make_settings, serve_api
from tests.service.jobs.keys import make_key
from tests.service.jobs.test_warm_start import write_model

SYNTHETIC: dict[str, Any] = {
    "name": "dry",
    "data": {"format": "synthetic", "synthetic": {"num_rows": 10_000, "num_ids": 1000}},
    "model": {"architecture": "dlrm", "embedding_dim": 64},
    "batch": {"global_size": 16_384},
    "dense_optimizer": {"learning_rate": 0.0005},
    "resources": {"workers_per_node": 2, "memory": "2GiB"},
}
NO_PLAN = '{"plan": null, "notes": null, "sizes_from": null, "refusal": null, "unknown_sizes": "no table was counted"}'
EXAMPLE = Path(__file__).parents[3] / "examples" / "plan-128-gpus.toml"


@pytest.fixture(scope="module")
def planning_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Service with the real trainer."""
    directory = tmp_path_factory.mktemp("planning")
    settings = make_settings(directory, f"sqlite:///{directory}/state/service.sqlite3")
    real = settings.model_copy(update={"trainer_python": Path(sys.executable)})
    with serve_api(real, runs_control_loop=False) as api:
        api.services.plans._planner = Planner(real.trainer_python, max_seconds=PATIENCE_SECONDS)
        yield api


def request_plan(planning_api: Api, document: dict[str, Any], status: int = 200) -> dict[str, Any]:
    """Request the plan of a document, check the status of the answer, and return its body."""
    response = planning_api.submitter.post("/v1/plans", json=document)
    assert response.status_code == status, response.text
    return response.json()


def test_the_answer_has_document_plan_memory_rates_and_fit(planning_api: Api) -> None:
    answer = request_plan(planning_api, SYNTHETIC)
    assert answer["document"]["batch"]["global_size"] == 16_384
    assert "chunk_size" in {number["name"] for number in answer["derived"]}
    decisions = {decision["field"]: decision for decision in answer["decisions"]}
    assert decisions["model.bottom_mlp"]["reason"] == "the last width is model.embedding_dim"
    # An epoch has no full batch, and a step takes all of its rows.
    assert answer["num_steps"] == decisions["run.epochs"]["value"] > 1
    assert len(answer["plan"]["tables"]) == 26
    assert {table["type"] for table in answer["plan"]["tables"]} == {"table_wise"}
    assert answer["memory"]["asked_bytes"] == 2 * 2**30
    assert 2 * 2**28 < answer["memory"]["planned_bytes"] < 2 * 2**30
    assert answer["fits"] == {"now": True, "ever": True, "reason": None, "why": []}
    assert any("fewer than batch.global_size 16,384" in warning for warning in answer["warnings"])
    rates = answer["learning_rates"]
    assert [rates[0]["done_fraction"], rates[-1]["done_fraction"]] == [0.01, 1.0]
    assert 0 < rates[0]["dense"] < rates[9]["dense"] > rates[-1]["dense"] > 0
    assert rates[0]["table"] == rates[-1]["table"] == 0.02


@pytest.mark.parametrize(
    ("scaling", "grown"), [({"scaling": "linear"}, 0.4), ({"scaling": "noise", "noise_scale": 2048}, 0.2)]
)
def test_the_rates_of_a_batch_that_grows_follow_its_size_by_samples(scaling: dict[str, Any], grown: float) -> None:
    schedule = {**scaling, "base_batch": 1024, "warmup_fraction": 0.2, "decay": "constant"}
    document = {
        "data": {"format": "synthetic"},
        "batch": {"global_size": 4096, "schedule": [{"until_fraction": 0.5, "global_size": 1024}]},
        "dense_optimizer": {"name": "sgd", "learning_rate": 0.1, "schedule": schedule},
    }
    points = compute_learning_rates(JobConfig.model_validate(document))
    assert [point.global_size for point in points] == [1024] * 50 + [4096] * 50
    assert [point.dense for point in points] == pytest.approx(
        [0.1 * (number + 1) / 20 for number in range(20)] + [0.1] * 30 + [grown] * 50
    )


def test_of_a_range_of_machines_the_one_that_there_is_is_planned(planning_api: Api) -> None:
    resources = {"nodes": {"min": 1, "max": 8}, "workers_per_node": 2, "memory": "2GiB"}
    plan = request_plan(planning_api, SYNTHETIC | {"resources": resources})["plan"]
    assert (plan["world_size"], plan["transport"]) == (2, "memory")


def test_the_same_document_is_planned_once(planning_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {**SYNTHETIC, "run": {"seed": 77}}
    first = request_plan(planning_api, document)
    monkeypatch.setattr(planning_api.services.plans._planner, "_command", ["/nothing/there"])
    assert request_plan(planning_api, document) == first


@pytest.mark.slow
def test_a_model_that_a_job_starts_from_is_read_again_for_each_plan(planning_api: Api) -> None:
    source = Path(planning_api.services.settings.data_roots[0], "retrained")
    document = {key: value for key, value in SYNTHETIC.items() if key != "model"}
    for dim in (12, 20):
        model = ModelConfig(architecture="dlrm", embedding_dim=dim, bottom_mlp=[dim]).model_dump(mode="json")
        write_model(source, model=model, data=SYNTHETIC["data"])
        answer = request_plan(planning_api, {**document, "run": {"warm_start": {"from": str(source)}}})
        assert answer["fits"]["ever"], answer["fits"]
        (decision,) = [each for each in answer["decisions"] if each["field"] == "model.embedding_dim"]
        assert decision["value"] == dim


def test_plans_are_kept_as_long_as_they_have_room(
    planning_api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, calls = tmp_path / "program", tmp_path / "calls"
    program.write_text(f"#!/bin/sh\necho >> {calls}\necho '{NO_PLAN}'\n")
    program.chmod(0o755)
    monkeypatch.setattr("service.plans.plan_process.MAX_CACHED_BYTES", 2 * len(NO_PLAN))
    monkeypatch.setattr(planning_api.services.plans, "_planner", Planner(program))
    for seed in (1, 2, 1, 3, 2, 1):
        # There is room for two plans: the third evicts the second, which then evicts the first.
        request_plan(planning_api, {**SYNTHETIC, "run": {"seed": seed}})
    assert len(calls.read_text().splitlines()) == 5


def test_an_answer_beyond_its_limit_is_refused(planning_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "answer_bytes", 1000)
    answer = request_plan(planning_api, {**SYNTHETIC, "run": {"seed": 78}}, status=422)
    assert "resources: a plan of 2 ranks and 26 tables" in answer["detail"]


def test_what_a_program_said_that_failed_stays_in_the_log(
    planning_api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'Traceback: /secret/path' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(planning_api.services.plans, "_planner", Planner(broken))
    answer = request_plan(planning_api, {**SYNTHETIC, "run": {"seed": 79}}, status=500)
    assert answer["type"] == "urn:dlrm:problem:planning-failed"
    assert "secret" not in json.dumps(answer)
    assert "exit code 1" in answer["detail"]


def test_tables_that_nobody_has_counted_are_estimated(planning_api: Api) -> None:
    answer = request_plan(planning_api, {**SYNTHETIC, "data": {"train": ["day_*.tsv"]}})
    assert len(answer["plan"]["tables"]) == 26
    assert answer["sizes_from"].startswith("an estimate: ")
    assert any("estimated from all rows, those held out for evaluation included" in note for note in answer["notes"])
    assert answer["fits"]["now"] is True


def test_no_row_is_read_where_a_path_is_refused(planning_api: Api) -> None:
    answer = request_plan(planning_api, {**SYNTHETIC, "data": {"train": ["day_*.tsv", "../outside.tsv"]}})
    assert answer["plan"] is None
    assert "dlrm prepare" in answer["unknown_sizes"]
    assert "C1, C2" in answer["unknown_sizes"]
    assert [why["field"] for why in answer["fits"]["why"]] == ["data.train.1"]
    assert (answer["num_steps"], answer["decisions"]) == (None, [])


def test_the_quota_of_the_sender_decides_whether_it_fits(planning_api: Api) -> None:
    job = planning_api.submit(resources={"workers_per_node": 2, "memory": "1GiB"})
    set_job(planning_api, job["id"], state="RUNNING")
    quota = f"/v1/quotas/{job['owner']}"
    try:
        assert planning_api.admin.put(quota, json={"num_cores": 3}).status_code == 200
        fits = request_plan(planning_api, SYNTHETIC)["fits"]
        assert (fits["now"], fits["ever"], fits["reason"]) == (False, True, "quota_exceeded")
        assert fits["why"][0]["message"] == f"needs 2 cores, and {job['owner']} occupies 2 of 3"
        with make_key(planning_api, "other", Role.SUBMITTER) as other:
            assert other.post("/v1/plans", json=SYNTHETIC).json()["fits"]["now"]
        # A submission would be refused.
        assert planning_api.admin.put(quota, json={"num_cores": 1}).status_code == 200
        fits = request_plan(planning_api, SYNTHETIC)["fits"]
        assert (fits["ever"], [fault["message"] for fault in fits["why"]]) == (False, ["asks for 2 cores"])
    finally:
        planning_api.admin.delete(quota)
        set_job(planning_api, job["id"], state="CANCELLED")


def test_what_is_held_decides_whether_it_fits_now(planning_api: Api) -> None:
    job = planning_api.submit(resources={"workers_per_node": 4, "memory": "1GiB"})
    planning_api.services.control.run_once()
    try:
        answer = request_plan(planning_api, SYNTHETIC)
        assert (answer["fits"]["now"], answer["fits"]["reason"]) == (False, "waiting_for_cpu")
    finally:
        planning_api.submitter.post(f"/v1/jobs/{job['id']}/cancel")


@pytest.mark.slow
def test_a_job_of_more_machines_never_fits_and_is_planned(planning_api: Api) -> None:
    answer = request_plan(planning_api, tomllib.loads(EXAMPLE.read_text()))
    assert answer["fits"]["ever"] is False
    assert {"resources.nodes", "data.train.0"} <= {fault["field"] for fault in answer["fits"]["why"]}
    assert answer["plan"]["world_size"] == 128
    assert answer["memory"]["planned_bytes"] <= answer["memory"]["asked_bytes"] == 80 * 10**9


@pytest.mark.slow
def test_a_job_of_more_memory_than_there_is_reads_in_its_own_units(planning_api: Api) -> None:
    answer = request_plan(planning_api, {**SYNTHETIC, "resources": {"memory": "1000GB"}})
    (fault,) = answer["fits"]["why"]
    assert fault["field"] == "resources.memory"
    assert fault["message"].startswith("asks for 1,000.00 GB, this machine has ")
    assert fault["valid"].endswith('GB"')


def test_too_little_memory_is_told_with_what_would_fit(planning_api: Api) -> None:
    data = {"format": "synthetic", "synthetic": {"num_rows": 1000, "num_ids": 4_000_000}}
    answer = request_plan(planning_api, {**SYNTHETIC, "data": data})
    assert answer["plan"] is None
    assert answer["refusal"]["short_bytes"] > 0
    assert answer["refusal"]["table"] in {f"C{number}" for number in range(1, 27)}
    assert any("(memory of a node)" in valid for valid in answer["refusal"]["valid"])
    assert answer["fits"]["ever"] is False


def test_a_model_outside_of_the_data_roots_tells_nothing(planning_api: Api, tmp_path: Path) -> None:
    model = {**ModelConfig(architecture="dlrm", embedding_dim=12, bottom_mlp=[12]).model_dump(mode="json")}
    record = {"model": model, "data": {"format": "synthetic"}, "num_dense": 13, "table_rows": {}}
    (tmp_path / "config.json").write_text(json.dumps(record))
    job = {"data": {"format": "synthetic"}, "run": {"warm_start": {"from": str(tmp_path)}}}
    answer = request_plan(planning_api, job)
    assert not answer["fits"]["ever"]
    assert 12 not in [number["value"] for number in answer["derived"]]


def test_a_directory_outside_of_the_data_roots_tells_nothing(planning_api: Api, tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text(json.dumps({"secret": 1}))
    answer = request_plan(planning_api, {**SYNTHETIC, "data": {"format": "packed", "train": [str(tmp_path)]}})
    assert (answer["plan"], answer["sizes_from"], answer["refusal"]) == (None, None, None)
    assert answer["fits"]["why"][0]["field"] == "data.train.0"


def test_a_plan_that_takes_too_long_is_given_up(
    planning_api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 30\n")
    slow.chmod(0o755)
    monkeypatch.setattr(planning_api.services.plans, "_planner", Planner(slow, max_seconds=0.2))
    answer = request_plan(planning_api, {**SYNTHETIC, "run": {"seed": 5}}, status=503)
    assert answer["type"] == "urn:dlrm:problem:plan-timeout"


def test_when_many_wait_for_plans_more_are_refused_at_once(
    planning_api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, go_on = tmp_path / "program", tmp_path / "go-on"
    program.write_text(f"#!/bin/sh\nuntil [ -e {go_on} ]; do sleep 0.02; done\necho '{NO_PLAN}'\n")
    program.chmod(0o755)
    planner = Planner(program)
    monkeypatch.setattr(planning_api.services.plans, "_planner", planner)
    documents = [{**SYNTHETIC, "run": {"seed": 100 + number}} for number in range(MAX_AT_ONCE + MAX_WAITING)]
    with ThreadPoolExecutor(len(documents)) as pool:
        answers = [pool.submit(request_plan, planning_api, document) for document in documents]
        wait_until(lambda: planner._admitted._value == 0)  # pyright: ignore[reportAttributeAccessIssue]
        refused = planning_api.submitter.post("/v1/plans", json=SYNTHETIC)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
        assert refused.json()["type"] == "urn:dlrm:problem:planning-busy"
        go_on.touch()
        assert [answer.result()["unknown_sizes"] for answer in answers] == ["no table was counted"] * len(documents)
    assert request_plan(planning_api, SYNTHETIC)["unknown_sizes"] == "no table was counted"


def test_the_planner_inherits_no_secret_of_the_service(
    planning_api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, seen = tmp_path / "program", tmp_path / "environment"
    program.write_text(f"#!/bin/sh\nenv > {seen}\necho '{NO_PLAN}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("DLRM_DATABASE_URL", "postgresql://service:secret@host/dlrm")
    monkeypatch.setattr(planning_api.services.plans, "_planner", Planner(program))
    request_plan(planning_api, {**SYNTHETIC, "run": {"seed": 77}})
    assert "PATH=" in seen.read_text()
    assert "secret" not in seen.read_text()
