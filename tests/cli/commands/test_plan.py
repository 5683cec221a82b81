"""`dlrm plan`: what it prints of a job or a run, and what it refuses."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli.commands.plan import read_step_parts
from cli.render.plan_report import format_spans, print_plan
from dlrm.config import JobConfig, ModelConfig, resolve
from dlrm.programs.plan import make_plan_line
from dlrm.record import PART_DESCRIPTIONS, PLAN, STEP_PARTS, EventReport, RunDirectory, SpoolWriter
from tests.cli.conftest import Command

EXAMPLES = Path(__file__).parents[3] / "examples"
SYNTHETIC: dict[str, Any] = {
    "data": {"format": "synthetic", "synthetic": {"num_rows": 10_000, "num_ids": 1000}},
    "model": {"architecture": "dlrm", "embedding_dim": 64},
    "batch": {"global_size": 16_384},
    "run": {"epochs": 1},
}
CRITEO = {"data": {"train": ["a.tsv"]}}
GPU = {"workers_per_node": 1, "gpus_per_worker": 1}


def job_in(directory: Path, document: dict[str, Any]) -> str:
    (directory / "a.tsv").write_text(("0\t" + "\t".join(["1"] * 39) + "\n") * 10)
    path = directory / "job.json"
    path.write_text(json.dumps(document))
    return str(path)


def print_synthetic(changes: dict[str, Any], **of_result: Any) -> str:
    """Return what is printed of a plan that is made in this process."""
    resolved = resolve(JobConfig.model_validate(SYNTHETIC | changes))
    result = json.loads(make_plan_line(resolved, None)) | {"estimated": None, "measured": None} | of_result
    console = Console(width=400)
    with console.capture() as capture:
        print_plan(console, resolved, result)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


LARGE = {
    "train": ["a"],
    "format": "parquet",
    "schema": {"categorical": [{"name": "large"}, {"name": "small"}]},
    "vocabulary": {"columns": {"large": {"hash_size": 100_000_000}, "small": {"hash_size": 1000}}},
}
WITHOUT_HELD_OUT = {"epochs": 1, "validation_fraction": 0.0, "blend": "none"}
BATCH = {"global_size": 128}
GROWING = BATCH | {"schedule": [{"until_fraction": 0.5, "global_size": 32}]}
ALIKE = {
    "train": ["a"],
    "format": "parquet",
    "schema": {"categorical": [{"name": "c{}", "count": 5}]},
    "vocabulary": {"hash_size": 1000},
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ["C12", "table_wise", "whole: balances the ranks", "weights", "lookup", "update", "samples/s"]),
        ({}, ["none: all ranks share one memory", "adam for the dense part, rowwise_adagrad for the tables"]),
        ({}, ["fewer than batch.global_size 16,384", "only 1 step to learn in", "only 1,000 evaluation rows"]),
        ({"variance_reduction": {}}, ["variance_reduction"]),
        ({"variance_reduction": {"control": "mean"}}, ["variance_reduction (control: mean)"]),
        # 9,000 training rows, none held out: half in 141 steps of 32 (4,512 samples), and 4,488 in 36 of 128.
        (
            {"batch": GROWING, "run": WITHOUT_HELD_OUT},
            [
                "9,000 samples in 177 steps, 71 steps if all were of 128; about ",
                "128 samples, 64 per rank, in chunks of 64; grown from 32\n",
                "\na step of 128, estimated: ",
                "what a step costs whatever its batch",
            ],
        ),
        ({"batch": BATCH, "run": WITHOUT_HELD_OUT}, ["9,000 samples in 71 steps; about "]),
        (
            {"batch": BATCH | {"growth": {"start_size": 32}}, "run": WITHOUT_HELD_OUT},
            ["9,000 samples, 71 steps if all were of 128\n"],
        ),
        ({"resources": {"memory": "8GiB"}}, ["8.0 GiB per machine", "of 8.0 GiB"]),
        ({"resources": {"memory": "8GB"}}, ["8.0 GB per machine", "of 8.0 GB"]),
        ({"resources": {"memory": "900TiB"}}, ["resources.memory: 921,600.0 GiB is more than the"]),
        (
            {
                "sharding": {"transport": "network", "exchange_dtype": "fp16"},
                "batch": {"global_size": 8192},
                "precision": "bf16",
                "model": {"embedding_dim": 8, "bottom_mlp": [16, 8]},
            },
            [
                "8,192 samples, 4,096 per rank, in chunks of 2,048",
                "embedding dimension 8, dense part in bf16",
                "pooled embeddings in fp16",
                *("memory_bandwidth", "intra_node_bandwidth", "flops"),
            ],
        ),
        (
            {
                "data": LARGE,
                "model": {"embedding_dim": 128, "bottom_mlp": [128]},
                "resources": GPU | {"memory": "100GB"},
                "sharding": {"topology": {"gpu_memory": "40GB"}},
            },
            [
                "100,001,000 rows, 51.2 GB of weights",
                "in the host's memory, 60 % cached",
                "in the host's memory, of a rank: 54.0 GB of tables",
                "host_bandwidth 25.0 GB/s (assumed)",
                "rows fetched from the host's memory",
                "sharding.min_cache_share: GPUs have no room for all tables; 1 table, up to 54.0 GB a rank",
            ],
        ),
        ({"data": ALIKE, "sharding": {"plan": "data_parallel"}}, ["5 of c0 … c4"]),
        (
            {"resources": GPU, "sharding": {"topology": {"gpu_memory": "80GB", "flops": 1e13}}},
            [
                "speeds of one rank in this estimate: memory_bandwidth 2.0 TB/s (assumed), flops 10.0 TFLOP/s (from "
                "the job); set better figures in sharding.topology"
            ],
        ),
        ({"resources": GPU}, ["CUDA graphs  on, not compiled: the run has fewer than 1,000,000,000 samples\n"]),
        ({"resources": GPU | {"cuda_graphs": "off"}}, ["off: one operation after another\n"]),
        ({"resources": GPU | {"cuda_graphs": "compiled"}}, ["compiled: torch.compile makes their kernels"]),
    ],
)
def test_a_plan_for_people_says_what_decides_it(changes: dict[str, Any], words: list[str]) -> None:
    text = print_synthetic(changes)
    for expected in words:
        assert expected in text
    assert "inter_node_bandwidth" not in text
    assert ("CUDA graphs" in text) == ("gpus_per_worker" in changes.get("resources", {}))


def test_a_preset_is_an_option_whose_values_are_printed_with_their_reasons(tmp_path: Path, dlrm: Command) -> None:
    job = job_in(tmp_path, {name: section for name, section in SYNTHETIC.items() if name != "batch"})
    resolved = json.loads(dlrm("plan", job, "--preset", "large_batch", "--json").out)["resolved"]
    assert resolved["job"]["preset"] == "large_batch"
    decisions = {decision["field"]: decision for decision in resolved["decisions"]}
    assert decisions["dense_optimizer.learning_rate"]["reason"].startswith("preset large_batch: ")
    assert resolved["job"]["batch"]["global_size"] == decisions["batch.global_size"]["value"] == 256
    for text, reason in {"huge_batch": "did you mean 'large_batch'?", "": "not one of", "[x": "not one of"}.items():
        refused = dlrm("plan", job, "--preset", text)
        assert (refused.code, "--preset: preset: " in refused.err, reason in refused.err) == (2, True, True)


def test_shortages_and_sizes_of_rows_that_are_not_prepared_are_estimated(tmp_path: Path, dlrm: Command) -> None:
    rows = [f"{int(number % 4 == 0)},{number % 7}" for number in range(500)]
    (tmp_path / "rows.csv").write_text("\n".join(["label,place", *rows]) + "\n")
    shutil.copy(tmp_path / "rows.csv", tmp_path / "later.csv")
    data = {"train": ["rows.csv"], "format": "csv", "schema": {"categorical": [{"name": "place"}]}}
    document = {"data": data, "batch": {"global_size": 50}, "run": {"epochs": 1}}
    named = {**document, "data": {**data, "eval": ["later.csv"]}}
    for job, num_steps, evaluation in (
        (document, 9, "there are only 50 evaluation rows, about 12 of them positive"),
        (named, 10, "there are only 500 evaluation rows, about 125 of them positive"),
    ):
        few_steps, few_rows = json.loads(dlrm("plan", job_in(tmp_path, job), "--json").out)["warnings"]
        assert f"only {num_steps} steps" in few_steps
        assert few_rows.startswith(evaluation)
    hashed = {"data": {**data, "vocabulary": {"columns": {"place": {"hash_size": 100}}}}}
    result = json.loads(dlrm("plan", job_in(tmp_path, hashed), "--json").out)
    assert (result["resolved"]["job"]["batch"]["global_size"], bool(result["warnings"])) == (256, True)


def test_the_plan_of_rows_that_are_not_prepared_has_every_decision_with_its_reason(
    tmp_path: Path, dlrm: Command
) -> None:
    ended = dlrm("plan", job_in(tmp_path, CRITEO))
    assert ended.code == 0, ended.err
    words = " ".join(ended.out.split())
    for expected in (
        "26, 78 rows",
        "sizes from an estimate: all 10 raw rows",
        "estimated from all rows, those held out for evaluation included; `dlrm prepare` counts them",
        "model.architecture dcn_v2 predicts better from up to",
        "model.bottom_mlp 512, 256, 16 the last width is model.embedding_dim",
        "run.patience 5 run.epochs is auto",
        "share_size 128 samples global_size / world_size",
        "model dcn_v2, embedding dimension 16, dense part in fp32",
    ):
        assert expected in words


def test_a_warm_start_is_planned_with_at_least_the_tables_of_its_model(tmp_path: Path, dlrm: Command) -> None:
    source = tmp_path / "yesterday"
    source.mkdir()
    model = ModelConfig(architecture="dlrm", embedding_dim=12, bottom_mlp=[12]).model_dump(mode="json")
    record = {"model": model, "data": CRITEO["data"], "num_dense": 13, "table_rows": {"C1": 5000, "C2": 2}}
    (source / "config.json").write_text(json.dumps(record))
    ended = dlrm("plan", job_in(tmp_path, CRITEO | {"run": {"warm_start": {"from": "yesterday"}}}), "--json")
    assert ended.code == 0, ended.err
    result = json.loads(ended.out)
    rows = {table["name"]: table["num_rows"] for table in result["plan"]["tables"]}
    # A value that every row has, and two shared rows.
    assert (rows["C1"], rows["C2"], rows["C3"]) == (5000, 3, 3)
    assert result["sizes_from"].startswith("an estimate: all 10 raw rows")
    assert result["sizes_from"].endswith("; at least those of the model that the run starts from")
    assert any("`dlrm prepare --extend` counts them" in note for note in result["notes"])
    assert result["resolved"]["job"]["model"]["embedding_dim"] == 12


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (CRITEO | {"resources": {"memory": "300MiB"}}, ["table sizes are an estimate: all 10 raw rows"]),
        (
            CRITEO | {"run": {"warm_start": {"from": "yesterday"}}},
            ["yesterday, run.warm_start.from: is not a directory (valid: the directory of a run that has succeeded"],
        ),
        (
            {"data": {"train": ["/claim/a.tsv"]}, "resources": {"launcher": "kubernetes", "memory": "900TiB"}},
            [
                "cannot be read here, as perhaps where the job runs (/claim/a.tsv: ",
                "set data.vocabulary.hash_size",
            ],
        ),
        (
            SYNTHETIC
            | {
                "data": {"format": "synthetic", "synthetic": {"num_ids": 10_000_000}},
                "resources": {"memory": "3GiB"},
            },
            ["short", "this would work: "],
        ),
    ],
)
def test_a_job_without_a_plan_is_refused_with_what_would_do(
    tmp_path: Path, dlrm: Command, document: dict[str, Any], words: list[str]
) -> None:
    ended = dlrm("plan", job_in(tmp_path, document))
    assert ended.code == 2
    for expected in words:
        assert expected in ended.err


def test_a_job_of_a_cluster_is_planned_without_its_files_and_for_other_machines(tmp_path: Path, dlrm: Command) -> None:
    document = {"data": {"train": ["/claim/a.tsv"]}, "resources": {"launcher": "kubernetes", "memory": "900TiB"}}
    ended = dlrm("plan", job_in(tmp_path, document), "--set", "data.vocabulary.hash_size=1000")
    assert ended.code == 0, ended.err
    assert "of this machine" not in ended.out


def test_settings_change_the_plan_and_json_has_every_block(tmp_path: Path, dlrm: Command) -> None:
    job = job_in(tmp_path, SYNTHETIC)
    ended = dlrm("plan", job, "--set", "batch.global_size=64", "--set", "sharding.plan=row_wise", "--json")
    assert ended.code == 0, ended.err
    plan = json.loads(ended.out)["plan"]
    assert (plan["global_size"], {table["type"] for table in plan["tables"]}) == (64, {"row_wise"})
    for table in plan["tables"]:
        assert sum(block[2] for block in table["blocks"]) == table["num_rows"]
    assert [warning.split(":")[0] for warning in json.loads(ended.out)["warnings"]] == [
        "there are only 1,000 evaluation rows, about 250 of them positive"
    ]
    refused = dlrm("plan", job, "--set", "sharding.plan=rowwise")
    assert refused.code == 2
    assert "--set: sharding.plan: 'rowwise' is not one of the choices" in refused.err


@pytest.mark.slow
def test_the_example_of_128_gpus_has_room_for_5_terabytes(dlrm: Command) -> None:
    ended = dlrm("plan", str(EXAMPLES / "plan-128-gpus.toml"), "--json")
    assert ended.code == 0, ended.err
    plan = json.loads(ended.out)["plan"]
    sizes = [table["num_rows"] for table in plan["tables"]]
    assert (len(sizes), min(sizes), max(sizes)) == (800, 1000, 10**9)
    assert {table["embedding_dim"] for table in plan["tables"]} == {128}
    assert 5.3e12 < 512 * sum(sizes) < 5.5e12
    assert max(rank["total_bytes"] for rank in plan["ranks"]) <= 80 * 10**9
    assert plan["imbalance"] < 1.1


@pytest.mark.parametrize("name", ["demo", pytest.param("dcn", marks=pytest.mark.slow)])
def test_examples_have_plans(name: str, dlrm: Command) -> None:
    assert dlrm("plan", str(EXAMPLES / f"{name}.toml")).code == 0


def write_events(directory: RunDirectory, number: int, **details: dict[str, Any]) -> Path:
    """Write the events of rank 0 of an attempt, with these details by name."""
    directory.attempt(number).create()
    path = directory.attempt(number).spool_file(0, "events")
    writer = SpoolWriter(path)
    for name, values in details.items():
        writer.write(EventReport(name=name, message="", details=values))
    writer.close()
    directory.spec.write_text(resolve(JobConfig.model_validate(SYNTHETIC)).model_dump_json())
    return path


def test_of_a_run_what_was_measured_stands_beside_the_estimate(tmp_path: Path, dlrm: Command) -> None:
    directory = RunDirectory(tmp_path / "run")
    for number, lookup in ((1, 0.5), (2, 0.25)):
        seconds = {STEP_PARTS: {"seconds": {"lookup": lookup, "agree": 0.125}}}
        write_events(directory, number, **{PLAN: {"step_seconds": {"lookup": lookup / 4}}}, **seconds)
    write_events(directory, 3, **{PLAN: {"step_seconds": {"lookup": 9.0}}})
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


@pytest.mark.slow
def test_a_damaged_line_of_a_run_is_passed_over_and_named(tmp_path: Path, dlrm: Command) -> None:
    directory = RunDirectory(tmp_path / "run")
    assert read_step_parts(directory) == ({}, None)
    events = write_events(directory, 1, **{STEP_PARTS: {"seconds": {"lookup": 0.5}}})
    assert read_step_parts(directory) == ({}, {"lookup": 0.5})
    events.write_bytes(b"garbage\n" + events.read_bytes() + b"\xff\n")
    ended = dlrm("plan", str(directory.path))
    assert ended.code == 0, ended.err
    assert "a step, measured: 500.0 ms" in ended.out
    assert ended.err.splitlines() == [f"warning: {events}: 2 damaged line(s) skipped"]


def test_terms_of_the_estimate_stand_beside_the_part_they_count_to() -> None:
    sharding = {"plan": "table_wise", "transport": "network", "topology": {"flops": 1e10}}
    text = print_synthetic({"sharding": sharding})
    found = text[text.index("a step, estimated") :].splitlines()[2:9]
    first = [line[: len("wait_for_sum")].rstrip() for line in found]
    assert first == ["lookup", "", "dense", "give_back", "table_update", "", "wait_for_sum"]
    terms = [line.split()[1 if part else 0] for part, line in zip(first, found, strict=True)]
    assert terms == ["lookup", "forward", "dense", "give_back", "backward", "update", "all_reduce"]


def test_a_gpu_that_is_nearly_full_is_noted_with_how_to_keep_some_free() -> None:
    def planned(gpu_memory: int) -> dict[str, Any]:
        sharding = {"plan": "table_wise", "topology": {"gpu_memory": gpu_memory}}
        # An automatic chunk would leave more room.
        batch = {"global_size": 8192, "chunk_size": 8192}
        document = {**SYNTHETIC, "batch": batch, "resources": GPU, "sharding": sharding}
        return json.loads(make_plan_line(resolve(JobConfig.model_validate(document)), None))

    roomy = planned(80 * 10**9)
    tight = planned(int(roomy["plan"]["largest_bytes"] / 0.98))
    noted = "sharding.topology.gpu_memory: the fullest GPU uses 98.0 % of it"
    assert not any(note.startswith("sharding.topology.gpu_memory") for note in roomy["notes"])
    assert any(note.startswith(noted) for note in tight["notes"])


def test_the_memory_of_gpus_that_nobody_has_described_is_assumed_and_noted(
    tmp_path: Path, dlrm: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A directory without nvidia-smi: a machine that has no GPU.
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    resources = {"workers_per_node": 2, "gpus_per_worker": 1}
    ended = dlrm("plan", job_in(tmp_path, {**SYNTHETIC, "resources": resources}))
    assert ended.code == 0, ended.err
    assert "2 ranks on GPUs, 80.0 GB each (assumed)" in ended.out
    assert "sharding.topology.gpu_memory: 80 GB are assumed" in ended.out


def test_names_of_others_are_printed_as_they_are_and_an_unknown_dense_part_is_said() -> None:
    place = "the prepared rows in /data/[old]/rows"
    assert place in print_synthetic({"sharding": {"topology": {"flops": 1e10}}}, sizes_from=place)
    plan = json.loads(make_plan_line(resolve(JobConfig.model_validate(SYNTHETIC)), None))["plan"]
    plan["step"]["is_dense_known"] = False
    out = print_synthetic({}, plan=plan)
    assert out.count("excluding the dense part, whose speed") == 2
    assert "samples/s, excluding the dense part" in out


def test_ranks_in_a_row_are_written_as_a_span() -> None:
    assert format_spans([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
