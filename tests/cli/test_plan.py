"""`dlrm plan`, with the real program."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli.commands.plan import read_step_parts
from cli.render.plan_report import format_spans, print_plan
from dlrm.config import JobConfig, resolve
from dlrm.programs.plan import make_plan_line
from dlrm.record import PART_DESCRIPTIONS, PLAN, STEP_PARTS, AttemptDirectory, EventReport, RunDirectory, SpoolWriter

EXAMPLES = Path(__file__).parents[2] / "examples"
SYNTHETIC: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 10_000, "num_ids": 1000}},
    "model": {"architecture": "dlrm", "embedding_dim": 64},
    "batch": {"global_size": 16_384},
    "run": {"epochs": 1},
}


def job_in(directory: Path, document: dict[str, Any]) -> str:
    path = directory / "job.json"
    path.write_text(json.dumps(document))
    return str(path)


def without_padding(text: str) -> str:
    """Return what was printed without the blanks at the ends of its lines."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def test_a_plan_for_people_has_tables_memory_and_the_step(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    ended = dlrm("plan", job_in(tmp_path, SYNTHETIC))
    assert ended.code == 0, ended.err
    for words in ("C12", "table_wise", "whole: balances the ranks", "weights", "lookup", "update", "samples/s"):
        assert words in ended.out
    assert "none: all ranks share one memory" in ended.out
    assert "adam for the dense part, rowwise_adagrad for the tables" in ended.out
    for reduction, words in {"": "reduction for", "mean": "reduction (control: mean) for"}.items():
        section = {"control": reduction} if reduction else {}
        reduced = dlrm("plan", job_in(tmp_path, {**SYNTHETIC, "variance_reduction": section}))
        assert f"adam with variance {words} the dense part, rowwise_adagrad for the tables" in reduced.out


def test_a_preset_is_an_option_whose_values_are_printed_with_their_reasons(
    tmp_path: Path, dlrm: Callable[..., Any]
) -> None:
    document = {name: section for name, section in SYNTHETIC.items() if name != "batch"}
    ended = dlrm("plan", job_in(tmp_path, document), "--preset", "large_batch", "--json")
    resolved = json.loads(ended.out)["resolved"]
    assert resolved["job"]["preset"] == "large_batch"
    decisions = {decision["field"]: decision for decision in resolved["decisions"]}
    assert decisions["dense_optimizer.learning_rate"]["reason"].startswith("preset large_batch: ")
    assert resolved["job"]["batch"]["global_size"] == decisions["batch.global_size"]["value"] == 256
    for text, reason in {"huge_batch": "did you mean 'large_batch'?", "": "not one of", "[x": "not one of"}.items():
        refused = dlrm("plan", job_in(tmp_path, document), "--preset", text)
        assert refused.code == 2
        assert "--preset: preset: " in refused.err
        assert reason in refused.err


def test_the_length_of_a_run_is_told_with_that_of_a_batch_that_does_not_grow(
    tmp_path: Path, dlrm: Callable[..., Any]
) -> None:
    """9,000 training rows, none held out: half in 141 steps of 32 (4,512 samples), and 4,488 in 36 of 128."""
    batch = {"global_size": 128, "schedule": [{"until_fraction": 0.5, "global_size": 32}]}
    run = {"epochs": 1, "validation_fraction": 0.0, "blend": "none"}
    ended = dlrm("plan", job_in(tmp_path, {**SYNTHETIC, "batch": batch, "run": run}))
    assert ended.code == 0, ended.err
    assert "9,000 samples in 177 steps, 71 steps if all were of 128; about " in without_padding(ended.out)
    assert "128 samples, 64 per rank, in chunks of 64; grown from 32\n" in without_padding(ended.out)
    assert "\na step of 128, estimated: " in ended.out
    assert "what a step costs whatever its batch" in ended.out
    assert ended.out.index("evaluation rows, about 250") < ended.out.index("decided, and derived")
    constant = dlrm("plan", job_in(tmp_path, {**SYNTHETIC, "batch": {"global_size": 128}, "run": run}))
    assert "9,000 samples in 71 steps; about " in constant.out
    by_noise = {"global_size": 128, "growth": {"start_size": 32}}
    unknown = dlrm("plan", job_in(tmp_path, {**SYNTHETIC, "batch": by_noise, "run": run}))
    assert "9,000 samples, 71 steps if all were of 128\n" in without_padding(unknown.out)


def test_shortages_of_the_run_are_told_before_it_starts(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    ended = dlrm("plan", job_in(tmp_path, SYNTHETIC))
    for words in ("fewer than batch.global_size 16,384", "only 1 step to learn in", "only 1,000 evaluation rows"):
        assert words in ended.out
    small = dlrm("plan", job_in(tmp_path, {**SYNTHETIC, "batch": {"global_size": 64}}), "--json")
    assert [warning.split(":")[0] for warning in json.loads(small.out)["warnings"]] == [
        "there are only 1,000 evaluation rows, about 250 of them positive"
    ]


def test_shortages_of_rows_that_are_not_prepared_are_told_by_estimate(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    rows = [f"{int(number % 4 == 0)},{number % 7}" for number in range(500)]
    (tmp_path / "rows.csv").write_text("\n".join(["label,place", *rows]) + "\n")
    data = {"train": ["rows.csv"], "format": "csv", "schema": {"categorical": [{"name": "place"}]}}
    document = {"data": data, "batch": {"global_size": 50}, "run": {"epochs": 1}}
    few_steps, few_rows = json.loads(dlrm("plan", job_in(tmp_path, document), "--json").out)["warnings"]
    assert "only 9 steps" in few_steps
    assert few_rows.startswith("there are only 50 evaluation rows, about 12 of them positive")
    shutil.copy(tmp_path / "rows.csv", tmp_path / "later.csv")
    named = {**document, "data": {**data, "eval": ["later.csv"]}}
    few_steps, few_rows = json.loads(dlrm("plan", job_in(tmp_path, named), "--json").out)["warnings"]
    assert "only 10 steps" in few_steps
    assert few_rows.startswith("there are only 500 evaluation rows, about 125 of them positive")


def test_rows_decide_where_the_document_gives_the_sizes_of_tables(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    (tmp_path / "rows.csv").write_text("\n".join(["label,place", *(f"{n % 2},{n % 7}" for n in range(500))]) + "\n")
    data = {"train": ["rows.csv"], "format": "csv", "schema": {"categorical": [{"name": "place"}]}}
    document = {"data": {**data, "vocabulary": {"columns": {"place": {"hash_size": 100}}}}}
    result = json.loads(dlrm("plan", job_in(tmp_path, document), "--json").out)
    assert result["resolved"]["job"]["batch"]["global_size"] == 256
    assert result["warnings"]


def test_one_line_of_json_has_every_block(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    ended = dlrm("plan", job_in(tmp_path, {**SYNTHETIC, "sharding": {"plan": "row_wise"}}), "--json")
    assert ended.code == 0, ended.err
    plan = json.loads(ended.out)["plan"]
    for table in plan["tables"]:
        assert sum(block[2] for block in table["blocks"]) == table["num_rows"]


@pytest.mark.slow
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


def test_rows_that_are_not_prepared_are_planned_by_an_estimate(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    (tmp_path / "a.tsv").write_text(("0\t" + "\t".join(["1"] * 39) + "\n") * 10)
    ended = dlrm("plan", job_in(tmp_path, {"data": {"train": ["a.tsv"]}}))
    assert ended.code == 0, ended.err
    assert "26, 78 rows" in ended.out
    assert "sizes from an estimate: all 10 raw rows" in ended.out
    assert "estimated from all rows, those held out for evaluation included; `dlrm prepare` counts them" in ended.out
    refused = dlrm("plan", job_in(tmp_path, {"data": {"train": ["a.tsv"]}, "resources": {"memory": "300MiB"}}))
    assert refused.code == 2
    assert "table sizes are an estimate: all 10 raw rows" in refused.err


def test_the_plan_of_rows_that_are_not_prepared_has_every_decision_with_its_reason(
    tmp_path: Path, dlrm: Callable[..., Any]
) -> None:
    (tmp_path / "a.tsv").write_text(("0\t" + "\t".join(["1"] * 39) + "\n") * 10)
    ended = dlrm("plan", job_in(tmp_path, {"data": {"train": ["a.tsv"]}}))
    words = " ".join(ended.out.split())
    for decided in (
        "model.architecture dcn_v2 predicts better from up to",
        "model.bottom_mlp 512, 256, 16 the last width is model.embedding_dim",
        "run.patience 5 run.epochs is auto",
        "share_size 128 samples global_size / world_size",
        "model dcn_v2, embedding dimension 16, dense part in fp32",
    ):
        assert decided in words


def test_unknown_sizes_are_an_error_with_the_way_out(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    (tmp_path / "a.tsv").write_text("0\t" + "\t".join(["1"] * 39) + "\n")
    # It extends the tables of its model, whatever these have.
    run = {"warm_start": {"from": "yesterday"}}
    ended = dlrm("plan", job_in(tmp_path, {"data": {"train": ["a.tsv"]}, "run": run}))
    assert ended.code == 2
    assert "dlrm prepare" in ended.err
    assert "hash_size" in ended.err


def test_a_job_of_a_cluster_is_planned_without_its_files_and_for_other_machines(
    tmp_path: Path, dlrm: Callable[..., Any]
) -> None:
    document = {"data": {"train": ["/claim/a.tsv"]}, "resources": {"launcher": "kubernetes", "memory": "900TiB"}}
    ended = dlrm("plan", job_in(tmp_path, document))
    assert ended.code == 2
    assert "cannot be read here, as perhaps where the job runs (/claim/a.tsv: " in ended.err
    assert "set data.vocabulary.hash_size" in ended.err
    ended = dlrm("plan", job_in(tmp_path, document), "--set", "data.vocabulary.hash_size=1000")
    assert ended.code == 0, ended.err
    assert "of this machine" not in ended.out


def test_no_room_is_an_error_with_what_would_do(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    log = {"format": "synthetic", "synthetic": {"num_ids": 10_000_000}}
    document = {**SYNTHETIC, "data": log, "resources": {"memory": "3GiB"}}
    ended = dlrm("plan", job_in(tmp_path, document))
    assert ended.code == 2
    assert "short" in ended.err
    assert "this would work: " in ended.err


@pytest.mark.parametrize("name", ["demo", "dcn"])
def test_examples_have_plans(name: str, dlrm: Callable[..., Any]) -> None:
    assert dlrm("plan", str(EXAMPLES / f"{name}.toml")).code == 0


def test_of_a_run_what_was_measured_stands_beside_the_estimate(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    directory = RunDirectory(tmp_path / "run")
    for number, lookup in ((1, 0.5), (2, 0.25)):
        attempt: AttemptDirectory = directory.attempt(number)
        attempt.create()
        writer = SpoolWriter(attempt.spool_file(0, "events"))
        writer.write(EventReport(name=PLAN, message="", details={"step_seconds": {"lookup": lookup / 4}}))
        writer.write(EventReport(name=STEP_PARTS, message="", details={"seconds": {"lookup": lookup, "agree": 0.125}}))
        writer.close()
    unfinished = directory.attempt(3)
    unfinished.create()
    writer = SpoolWriter(unfinished.spool_file(0, "events"))
    writer.write(EventReport(name=PLAN, message="", details={"step_seconds": {"lookup": 9.0}}))
    writer.close()
    directory.spec.write_text(resolve(JobConfig.model_validate(SYNTHETIC)).model_dump_json())
    ended = dlrm("plan", str(directory.path))
    assert ended.code == 0, ended.err
    assert "a step, measured: 375.0 ms" in ended.out
    rows = [line.split() for line in ended.out.splitlines()]
    assert ["lookup", "62.5", "ms", "250.0", "ms", *PART_DESCRIPTIONS["lookup"].split()] in rows
    assert ["agree", "-", "125.0", "ms", *PART_DESCRIPTIONS["agree"].split()] in rows
    assert ["total", "62.5", "ms", "375.0", "ms"] in rows
    # Each speed below its own block: 16,384 samples in 0.375 s.
    estimated, measured = ended.out.split("a step, measured")
    assert "the slowest rank is" in estimated
    assert "43,691 samples/s, excluding the time between steps" in measured
    assert "the slowest rank is" not in measured


def test_a_damaged_line_of_a_run_is_passed_over_and_named(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    directory = RunDirectory(tmp_path / "run")
    directory.attempt(1).create()
    events = directory.attempt(1).spool_file(0, "events")
    writer = SpoolWriter(events)
    writer.write(EventReport(name=STEP_PARTS, message="", details={"seconds": {"lookup": 0.5}}))
    writer.close()
    events.write_bytes(b"garbage\n" + events.read_bytes() + b"\xff\n")
    directory.spec.write_text(resolve(JobConfig.model_validate(SYNTHETIC)).model_dump_json())
    ended = dlrm("plan", str(directory.path))
    assert ended.code == 0, ended.err
    assert "a step, measured: 500.0 ms" in ended.out
    assert ended.err.splitlines() == [f"warning: {events}: 2 damaged line(s) skipped"]


def test_an_attempt_that_told_no_estimate_has_none_beside_what_it_measured(tmp_path: Path):
    directory = RunDirectory(tmp_path / "run")
    assert read_step_parts(directory) == ({}, None)
    directory.attempt(1).create()
    writer = SpoolWriter(directory.attempt(1).spool_file(0, "events"))
    writer.write(EventReport(name=STEP_PARTS, message="", details={"seconds": {"lookup": 0.5}}))
    writer.close()
    assert read_step_parts(directory) == ({}, {"lookup": 0.5})


def test_terms_of_the_estimate_stand_beside_the_part_they_count_to(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    sharding = {"plan": "table_wise", "transport": "network", "topology": {"flops": 1e10}}
    ended = dlrm("plan", job_in(tmp_path, {**SYNTHETIC, "sharding": sharding}))
    assert ended.code == 0, ended.err
    found = ended.out[ended.out.index("a step, estimated") :].splitlines()[2:9]
    first = [line[: len("wait_for_sum")].rstrip() for line in found]
    assert first == ["lookup", "", "dense", "give_back", "table_update", "", "wait_for_sum"]
    terms = [line.split()[1 if part else 0] for part, line in zip(first, found, strict=True)]
    assert terms == ["lookup", "forward", "dense", "give_back", "backward", "update", "all_reduce"]


def test_sizes_are_in_the_units_of_the_document(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    for memory, shown in (("8GiB", "8.0 GiB per machine"), ("8GB", "8.0 GB per machine")):
        ended = dlrm("plan", job_in(tmp_path, {**SYNTHETIC, "resources": {"memory": memory}}))
        assert shown in ended.out
        assert f"of {shown.removesuffix(' per machine')}" in ended.out


def test_what_the_figures_depend_on_is_told(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    sharding = {"transport": "network", "exchange_dtype": "fp16"}
    document = {**SYNTHETIC, "sharding": sharding, "batch": {"global_size": 8192}}
    document |= {"precision": "bf16", "model": {"embedding_dim": 8, "bottom_mlp": [16, 8]}}
    ended = dlrm("plan", job_in(tmp_path, document))
    assert ended.code == 0, ended.err
    assert "8,192 samples, 4,096 per rank, in chunks of 2,048" in ended.out
    assert "embedding dimension 8, dense part in bf16" in ended.out
    assert "pooled embeddings in fp16" in ended.out
    for figure in ("memory_bandwidth", "intra_node_bandwidth", "flops"):
        assert figure in ended.out
    assert "inter_node_bandwidth" not in ended.out


def test_a_gpu_that_is_nearly_full_is_noted_with_how_to_keep_some_free() -> None:
    def planned(gpu_memory: int) -> dict[str, Any]:
        resources = {"workers_per_node": 1, "gpus_per_worker": 1}
        sharding = {"plan": "table_wise", "topology": {"gpu_memory": gpu_memory}}
        # An automatic chunk would leave more room.
        batch = {"global_size": 8192, "chunk_size": 8192}
        document = {**SYNTHETIC, "batch": batch, "resources": resources, "sharding": sharding}
        return json.loads(make_plan_line(resolve(JobConfig.model_validate(document)), None))

    roomy = planned(80 * 10**9)
    tight = planned(int(roomy["plan"]["largest_bytes"] / 0.98))
    noted = "sharding.topology.gpu_memory: the fullest GPU uses 98.0 % of it"
    assert not any(note.startswith("sharding.topology.gpu_memory") for note in roomy["notes"])
    assert any(note.startswith(noted) for note in tight["notes"])


def test_tables_in_the_memory_of_the_host_are_told_with_what_they_cost(
    tmp_path: Path, dlrm: Callable[..., Any]
) -> None:
    data = {
        "train": ["a"],
        "format": "parquet",
        "schema": {"categorical": [{"name": "large"}, {"name": "small"}]},
        "vocabulary": {"columns": {"large": {"hash_size": 100_000_000}, "small": {"hash_size": 1000}}},
    }
    document = {
        "data": data,
        "model": {"embedding_dim": 128, "bottom_mlp": [128]},
        "resources": {"workers_per_node": 1, "gpus_per_worker": 1, "memory": "100GB"},
        "sharding": {"topology": {"gpu_memory": "40GB"}},
    }
    ended = dlrm("plan", job_in(tmp_path, document))
    assert ended.code == 0, ended.err
    assert "100,001,000 rows, 51.2 GB of weights" in ended.out
    assert "in the host's memory, 60 % cached" in ended.out
    assert "in the host's memory, of a rank: 54.0 GB of tables" in ended.out
    assert "host_bandwidth 25.0 GB/s (assumed)" in ended.out
    assert "rows fetched from the host's memory" in ended.out
    assert "sharding.min_cache_share: GPUs have no room for all tables; 1 table, up to 54.0 GB a rank" in ended.out


def test_tables_that_are_alike_are_counted_between_the_first_and_the_last(
    tmp_path: Path, dlrm: Callable[..., Any]
) -> None:
    schema = {"categorical": [{"name": "c{}", "count": 5}]}
    data = {"train": ["a"], "format": "parquet", "schema": schema, "vocabulary": {"hash_size": 1000}}
    ended = dlrm("plan", job_in(tmp_path, {"data": data, "sharding": {"plan": "data_parallel"}}))
    assert ended.code == 0, ended.err
    assert "5 of c0 … c4" in ended.out


def test_figures_that_are_assumed_are_told_of_a_single_rank_too(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    resources = {"workers_per_node": 1, "gpus_per_worker": 1}
    sharding = {"topology": {"gpu_memory": "80GB", "flops": 1e13}}
    ended = dlrm("plan", job_in(tmp_path, {**SYNTHETIC, "resources": resources, "sharding": sharding}))
    assert ended.code == 0, ended.err
    figures = "memory_bandwidth 2.0 TB/s (assumed), flops 10.0 TFLOP/s (from the job); set"
    assert f"speeds of one rank in this estimate: {figures} better figures in sharding.topology" in ended.out


def test_the_memory_of_gpus_that_nobody_has_described_is_assumed_and_noted(
    tmp_path: Path, dlrm: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A directory without nvidia-smi: a machine that has no GPU.
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    resources = {"workers_per_node": 2, "gpus_per_worker": 1}
    ended = dlrm("plan", job_in(tmp_path, {**SYNTHETIC, "resources": resources}))
    assert ended.code == 0, ended.err
    assert "2 ranks on GPUs, 80.0 GB each (assumed)" in ended.out
    assert "sharding.topology.gpu_memory: 80 GB are assumed" in ended.out


def test_what_stands_against_a_run_on_this_machine_is_told(tmp_path: Path, dlrm: Callable[..., Any]) -> None:
    ended = dlrm("plan", job_in(tmp_path, {**SYNTHETIC, "resources": {"memory": "900TiB"}}))
    assert ended.code == 0, ended.err
    assert "resources.memory: 921,600.0 GiB is more than the" in ended.out


def test_names_of_others_are_printed_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = JobConfig.model_validate({**SYNTHETIC, "sharding": {"topology": {"flops": 1e10}}})
    result = json.loads(make_plan_line(resolve(job), None))
    result |= {"sizes_from": "the prepared rows in /data/[old]/rows", "estimated": None, "measured": None}
    print_plan(Console(width=400), resolve(job), result)
    assert "the prepared rows in /data/[old]/rows" in capsys.readouterr().out


def test_without_the_dense_part_a_step_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    resolved = resolve(JobConfig.model_validate(SYNTHETIC))
    result = json.loads(make_plan_line(resolved, None)) | {"estimated": None, "measured": None}
    result["plan"]["step"]["is_dense_known"] = False
    print_plan(Console(width=400), resolved, result)
    out = capsys.readouterr().out
    assert out.count("excluding the dense part, whose speed") == 2
    assert "samples/s, excluding the dense part" in out


def test_ranks_in_a_row_are_written_as_a_span():
    assert format_spans([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
