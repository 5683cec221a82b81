"""`dlrm plan`, with the real program."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlrm.config import parse_job, resolve
from dlrm.record import STEP_PARTS, AttemptDirectory, EventReport, RunDirectory, SpoolWriter
from service.command.plan_view import spans

EXAMPLES = Path(__file__).parents[3] / "examples"
SYNTHETIC: dict[str, Any] = {"data": {"format": "synthetic", "synthetic": {"num_rows": 10_000, "num_ids": 1000}}}


def job_in(directory: Path, document: dict[str, Any]) -> str:
    path = directory / "job.json"
    path.write_text(json.dumps(document))
    return str(path)


def test_a_plan_for_people_has_tables_memory_and_the_step(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    ended = dlrm("plan", job_in(tmp_path, SYNTHETIC))
    assert ended.code == 0, ended.err
    for words in ("C12", "table_wise", "whole: balances the ranks", "weights", "lookup", "update", "samples/s"):
        assert words in ended.out
    assert "none: all ranks read one memory" in ended.out


def test_one_line_of_json_has_every_block(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    ended = dlrm("plan", job_in(tmp_path, {**SYNTHETIC, "sharding": {"plan": "row_wise"}}), "--json")
    assert ended.code == 0, ended.err
    plan = json.loads(ended.out)["plan"]
    for table in plan["tables"]:
        assert sum(block[2] for block in table["blocks"]) == table["num_rows"]


def test_the_example_of_128_gpus_has_room_for_5_terabytes(dlrm: Callable[..., Any]) -> None:
    ended = dlrm("plan", str(EXAMPLES / "plan-128-gpus.toml"), "--json")
    assert ended.code == 0, ended.err
    plan = json.loads(ended.out)["plan"]
    assert len(plan["tables"]) == 800
    assert {table["embedding_dim"] for table in plan["tables"]} == {128}
    sizes = [table["num_rows"] for table in plan["tables"]]
    assert (min(sizes), max(sizes)) == (1000, 10**9)
    assert 5.3e12 < 512 * sum(sizes) < 5.5e12
    assert max(rank["total_bytes"] for rank in plan["ranks"]) <= 80 * 10**9
    assert plan["imbalance"] < 1.1


def test_unknown_sizes_are_an_error_with_the_way_out(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    (tmp_path / "a.tsv").write_text("0\t" + "\t".join(["1"] * 39) + "\n")
    ended = dlrm("plan", job_in(tmp_path, {"data": {"train": ["a.tsv"]}}))
    assert ended.code == 2
    assert "dlrm prepare" in ended.err
    assert "hash_size" in ended.err


def test_no_room_is_an_error_with_what_would_do(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    document = {"data": {"format": "synthetic", "synthetic": {"num_ids": 10_000_000}}, "resources": {"memory": "3GiB"}}
    ended = dlrm("plan", job_in(tmp_path, document))
    assert ended.code == 2
    assert "short" in ended.err
    assert "what would do: " in ended.err


@pytest.mark.parametrize("name", ["demo", "dcn"])
def test_examples_have_plans(name: str, dlrm: Callable[..., Any]) -> None:
    assert dlrm("plan", str(EXAMPLES / f"{name}.toml")).code == 0


def test_of_a_run_what_was_measured_stands_beside_the_estimate(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    directory = RunDirectory(tmp_path / "run")
    for number, lookup in ((1, 0.5), (2, 0.25)):
        attempt: AttemptDirectory = directory.attempt(number)
        attempt.create()
        writer = SpoolWriter(attempt.spool_file(0, "events"))
        writer.write(EventReport(name=STEP_PARTS, message="", details={"seconds": {"lookup": lookup, "agree": 0.125}}))
        writer.close()
    directory.spec.write_text(resolve(parse_job(SYNTHETIC)).model_dump_json())
    ended = dlrm("plan", str(directory.path))
    assert ended.code == 0, ended.err
    assert "a step, measured: 375.0 ms" in ended.out
    assert "250.0 ms" in ended.out
    assert "125.0 ms" in ended.out


def test_ranks_in_a_row_are_written_as_a_span():
    assert spans([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
