"""`POST /v1/plans`, with the real planning program."""

import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from service.plans.planner import LIMITS, MAX_AT_ONCE, MAX_WAITING, Planner
from tests.patience import PATIENCE_SECONDS
from tests.service.conftest import serving, settings_in

SYNTHETIC: dict[str, Any] = {
    "name": "dry",
    "data": {"format": "synthetic", "synthetic": {"num_rows": 10_000, "num_ids": 1000}},
    "resources": {"workers_per_node": 2, "memory": "2GiB"},
}
NOTHING = '{"plan": null, "notes": null, "sizes_from": null, "refusal": null, "unknown_sizes": "nobody knows"}'
EXAMPLE = Path(__file__).parents[3] / "examples" / "plan-128-gpus.toml"


@pytest.fixture(scope="module")
def planning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service whose trainer is the real one."""
    settings = settings_in(tmp_path_factory.mktemp("planning"))
    real = settings.model_copy(update={"trainer_python": Path(sys.executable)})
    with serving(real, lifespan="off") as made:
        made.services.plans._planner = Planner(real.trainer_python, most_seconds=PATIENCE_SECONDS)
        yield made


def planned(planning: Any, document: dict[str, Any], status: int = 200) -> dict[str, Any]:
    response = planning.submitter.post("/v1/plans", json=document)
    assert response.status_code == status, response.text
    return response.json()


def test_the_answer_has_document_plan_memory_rates_and_fit(planning: Any) -> None:
    answer = planned(planning, SYNTHETIC)
    assert answer["document"]["batch"]["global_size"] == 16_384
    assert "chunk_size" in {number["name"] for number in answer["derived"]}
    assert len(answer["plan"]["tables"]) == 26
    assert {table["type"] for table in answer["plan"]["tables"]} == {"table_wise"}
    assert answer["memory"]["asked_bytes"] == 2 * 2**30
    assert 2 * 2**28 < answer["memory"]["planned_bytes"] < 2 * 2**30
    assert answer["fits"] == {"now": True, "ever": True, "reason": None, "why": []}
    rates = answer["learning_rates"]
    assert [rates[0]["done_fraction"], rates[-1]["done_fraction"]] == [0.01, 1.0]
    assert 0 < rates[0]["dense"] < rates[9]["dense"] > rates[-1]["dense"] > 0
    assert rates[0]["table"] == rates[-1]["table"] == 0.02


def test_nothing_is_kept_of_a_plan(planning: Any) -> None:
    planned(planning, SYNTHETIC)
    assert planning.viewer.get("/v1/jobs").json()["items"] == []


def test_the_same_document_is_planned_once(planning: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {**SYNTHETIC, "run": {"seed": 77}}
    first = planned(planning, document)
    monkeypatch.setattr(planning.services.plans._planner, "_command", ["/nothing/there"])
    assert planned(planning, document) == first


def test_plans_are_kept_as_long_as_they_have_room(
    planning: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program says how often it was asked."""
    program, calls = tmp_path / "program", tmp_path / "calls"
    program.write_text(f"#!/bin/sh\necho >> {calls}\necho '{NOTHING}'\n")
    program.chmod(0o755)
    monkeypatch.setattr("service.plans.planner.MOST_KEPT_BYTES", 2 * len(NOTHING))
    monkeypatch.setattr(planning.services.plans, "_planner", Planner(program))
    for seed in (1, 2, 1, 3, 2, 1):
        # The third plan takes the room of the second, which then takes that of the first.
        planned(planning, {**SYNTHETIC, "run": {"seed": seed}})
    assert len(calls.read_text().splitlines()) == 5


def test_a_plan_that_takes_too_much_memory_is_refused_with_what_would_do(
    planning: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, "memory_bytes", 2**22)
    schema = {"categorical": [{"name": "c{}", "count": 1000}]}
    data = {"train": ["a"], "format": "parquet", "schema": schema, "vocabulary": {"hash_size": 1000}}
    resources = {"nodes": 8, "workers_per_node": 8, "memory": "90GB"}
    document = {"data": data, "resources": resources, "sharding": {"plan": "data_parallel"}}
    answer = planned(planning, document, status=422)
    assert answer["type"] == "urn:dlrm:problem:cannot-plan"
    assert "resources: a plan of 64 ranks and 1,000 tables" in answer["detail"]
    assert "`dlrm plan` on the document has no limit" in answer["detail"]


def test_an_answer_beyond_its_limit_is_refused(planning: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "answer_bytes", 1000)
    answer = planned(planning, {**SYNTHETIC, "run": {"seed": 78}}, status=422)
    assert "resources: a plan of 2 ranks and 26 tables" in answer["detail"]


def test_what_a_program_said_that_failed_stays_in_the_log(
    planning: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'Traceback: /secret/path' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(planning.services.plans, "_planner", Planner(broken))
    answer = planned(planning, {**SYNTHETIC, "run": {"seed": 79}}, status=500)
    assert answer["type"] == "urn:dlrm:problem:planning-failed"
    assert "secret" not in json.dumps(answer)
    assert "ended with 1" in answer["detail"]


def test_more_threads_than_there_are_cores_are_noted(planning: Any) -> None:
    answer = planned(planning, {**SYNTHETIC, "resources": {"threads_per_worker": 1024, "memory": "2GiB"}})
    assert any(note.startswith("resources.threads_per_worker: 2 x 1024 threads") for note in answer["notes"])


def test_tables_that_nobody_has_counted_are_said_to_be_unknown(planning: Any) -> None:
    answer = planned(planning, {**SYNTHETIC, "data": {"train": ["day_*.tsv"]}})
    assert answer["plan"] is None
    assert "dlrm prepare" in answer["unknown_sizes"]
    assert "C1, C2" in answer["unknown_sizes"]
    assert answer["fits"]["now"] is True


def test_what_is_free_decides_whether_it_fits_now(planning: Any) -> None:
    job = planning.submit(resources={"workers_per_node": 3, "memory": "1GiB"}, batch={"global_size": 66})
    try:
        answer = planned(planning, SYNTHETIC)
        assert answer["fits"]["ever"] is True
        assert (answer["fits"]["now"], answer["fits"]["reason"]) == (False, "behind_reservation")
    finally:
        planning.submitter.post(f"/v1/jobs/{job['id']}/cancel")


def test_a_job_of_more_machines_never_fits_and_is_planned(planning: Any) -> None:
    import tomllib

    answer = planned(planning, tomllib.loads(EXAMPLE.read_text()))
    assert answer["fits"]["ever"] is False
    assert {"resources.nodes", "data.train.0"} <= {fault["field"] for fault in answer["fits"]["why"]}
    assert answer["plan"]["world_size"] == 128
    assert answer["memory"]["planned_bytes"] <= answer["memory"]["asked_bytes"] == 80 * 10**9


def test_a_job_of_more_memory_than_there_is_reads_in_its_own_units(planning: Any) -> None:
    answer = planned(planning, {**SYNTHETIC, "resources": {"memory": "1000GB"}})
    (fault,) = answer["fits"]["why"]
    assert fault["field"] == "resources.memory"
    assert fault["message"].startswith("asks for 1,000.00 GB, this machine has ")
    assert fault["valid"].endswith('GB"')


def test_too_little_memory_is_told_with_what_would_fit(planning: Any) -> None:
    data = {"format": "synthetic", "synthetic": {"num_rows": 1000, "num_ids": 4_000_000}}
    answer = planned(planning, {**SYNTHETIC, "data": data})
    assert answer["plan"] is None
    assert answer["refusal"]["short_bytes"] > 0
    assert answer["refusal"]["table"] in {f"C{number}" for number in range(1, 27)}
    assert any("of memory a node" in valid for valid in answer["refusal"]["valid"])
    assert answer["fits"]["ever"] is False


def test_a_pattern_that_claims_no_table_is_named(planning: Any) -> None:
    sharding = {"tables": [{"pattern": "X*", "type": "row_wise"}]}
    answer = planned(planning, {**SYNTHETIC, "sharding": sharding})
    assert answer["refusal"]["field"] == "sharding.tables.0.pattern"


def test_a_wrong_document_is_a_problem(planning: Any) -> None:
    answer = planned(planning, {**SYNTHETIC, "sharding": {"plan": "column_wise"}}, status=422)
    assert answer["errors"][0]["field"] == "sharding.plan"


def test_a_directory_outside_of_the_data_roots_tells_nothing(planning: Any, tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text(json.dumps({"secret": 1}))
    answer = planned(planning, {**SYNTHETIC, "data": {"format": "packed", "train": [str(tmp_path)]}})
    assert (answer["plan"], answer["sizes_from"], answer["refusal"]) == (None, None, None)
    assert answer["fits"]["why"][0]["field"] == "data.train.0"


def test_a_viewer_may_not_have_plans_made(planning: Any) -> None:
    assert planning.viewer.post("/v1/plans", json=SYNTHETIC).status_code == 403


def test_a_plan_that_takes_too_long_is_given_up(planning: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 30\n")
    slow.chmod(0o755)
    monkeypatch.setattr(planning.services.plans, "_planner", Planner(slow, most_seconds=0.2))
    answer = planned(planning, {**SYNTHETIC, "run": {"seed": 5}}, status=503)
    assert answer["type"] == "urn:dlrm:problem:plan-timeout"


def test_when_many_wait_for_plans_more_are_refused_at_once(
    planning: Any, eventually: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, go_on = tmp_path / "held", tmp_path / "go-on"
    held.write_text(f"#!/bin/sh\nuntil [ -e {go_on} ]; do sleep 0.02; done\necho '{NOTHING}'\n")
    held.chmod(0o755)
    planner = Planner(held)
    monkeypatch.setattr(planning.services.plans, "_planner", planner)
    documents = [{**SYNTHETIC, "run": {"seed": 100 + number}} for number in range(MAX_AT_ONCE + MAX_WAITING)]
    with ThreadPoolExecutor(len(documents)) as pool:
        answers = [pool.submit(planned, planning, document) for document in documents]
        eventually(lambda: planner._admitted._value == 0)  # pyright: ignore[reportAttributeAccessIssue]
        refused = planning.submitter.post("/v1/plans", json=SYNTHETIC)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
        assert refused.json()["type"] == "urn:dlrm:problem:planning-busy"
        go_on.touch()
        assert [answer.result()["unknown_sizes"] for answer in answers] == ["nobody knows"] * len(documents)
    assert planned(planning, SYNTHETIC)["unknown_sizes"] == "nobody knows"
