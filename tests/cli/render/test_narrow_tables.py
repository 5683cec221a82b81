"""Every table fits a terminal of 80 columns with values of real size: no figure and no id is cut or split."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli.experiments.search.records import UNTUNED, TrialRecord
from cli.experiments.search.tuner import Tuning
from cli.render import job_tables as tables
from cli.render.inspection import print_report
from cli.render.plan_report import print_plan
from cli.render.profile import print_profile
from cli.render.quality import make_advice_table, make_comparison_table
from cli.render.tuning import make_finals_table
from dlrm.config import JobConfig, resolve
from dlrm.gradient_stats.batch_advice import advise
from dlrm.gradient_stats.noise import NoiseInterval
from dlrm.programs.plan import make_plan_line
from dlrm.record import (
    PART_DESCRIPTIONS,
    YARDSTICKS,
    EndReason,
    ExchangeProfile,
    OperatorTime,
    ProfileDirectory,
    StepProfile,
)
from service.client import (
    ApiKey,
    Artifact,
    Attempt,
    BatchStage,
    Checkpoint,
    DerivedNumber,
    Event,
    Job,
    JobDetails,
    Progress,
    QueuePlace,
)

WIDTH = 80
TIME = datetime.now(UTC) - timedelta(hours=30)
JOB_ID = "job_01M8FW1SKT9CE1EM6ARP645J2K"
KEY_ID = "key_01M8FW1SKT9CE1EM6ARP645J2K"
RUN = f"/var/lib/dlrm/state/runs/{JOB_ID}"
COLUMN = "recently_clicked_item_ids"
JOB: dict[str, Any] = {
    "id": JOB_ID,
    "name": "ctr-large-batch-vrgd-lamb-524288-seed-3",
    "owner": "recommendations-team",
    "state": "RECOVERING",
    "reason": "behind_reservation",
    "message": f"needs 120 GiB of 128 GiB; {JOB_ID} ends in about 2 h",
    "created_at": TIME,
    "world_size": 16,
    "progress": Progress(step=1_234_567, num_steps=1_500_000, done_fraction=0.934, auc=0.78123, loss=0.4412),
}


def print_at_80(show: Callable[[Console], None]) -> list[str]:
    console = Console(width=WIDTH)
    with console.capture() as capture:
        show(console)
    return capture.get().splitlines()


def make_details() -> JobDetails:
    return JobDetails(
        **JOB,
        labels={"team": "recommendations", "experiment": "large-batch-vrgd", "seed": "3"},
        created_by="laptop of ann",
        files_at=f"s3://ads-models/production/runs/{JOB_ID}",
        launcher="kubernetes",
        num_nodes=16,
        image=f"registry.example.com/ads/dlrm-trainer:0.1.0@sha256:{'a' * 64}",
        model_path=f"{RUN}/model",
        batch_stages=[BatchStage(global_size=4096, until_fraction=0.5), BatchStage(global_size=524_288)],
        queue=QueuePlace(position=1234, waits_for="120 GiB of memory are not free", expected_start_at=TIME),
    )


def make_checkpoint() -> Checkpoint:
    return Checkpoint(
        step=1_234_567, num_samples=1, done_fraction=0.5, time=TIME, num_bytes=10**12, world_size=16, path=RUN
    )


def make_comparison() -> dict[str, Any]:
    metrics: dict[str, Any] = {"num_samples": 4e9, "samples_per_second": 1e5, "constant_log_loss": 0.5}
    for prefix in ("", *(f"{name}_" for name in YARDSTICKS)):
        figures = {"auc": 0.7812, "auc_standard_error": 0.0021, "log_loss": 0.4412, "calibration": 0.981}
        figures |= {"seconds": 12_345.6, "num_rows": 10**8, "num_train_rows": 1_234_567_890}
        metrics |= {f"{prefix}{name}": value for name, value in figures.items()}
    return metrics


def make_tuning() -> Tuning:
    settings = {
        "dense_optimizer.learning_rate": 0.00123,
        "table_optimizer.learning_rate": 0.0123,
        "batch.global_size": 524_288,
        "model.embedding_dim": 128,
        "model.architecture": "dcn_v2",
        "model.top_mlp": [1024, 1024, 512, 256, 1],
    }
    record = TrialRecord(
        trial=UNTUNED,
        rung=0,
        fraction=1.0,
        settings=settings,
        state="succeeded",
        reason=EndReason.COMPLETED,
        validation_log_loss=0.44123,
        auc=0.78123,
        auc_standard_error=0.00213,
        seconds=12_345.6,
    )
    trial = record.model_copy(update={"trial": 123})
    return Tuning(trial, record, [trial, record], 123, 1e5, 1e5)


EVENTS = [
    Event(id=1, time=TIME, kind="state", to_state="CANCELLING", reason="waiting_for_memory", message=JOB["message"]),
    Event(id=2, time=TIME, kind="report", name="early_stopping_of_the_run", message="x" * 200),
]
KEYS = [
    ApiKey(
        id=KEY_ID,
        name="continuous-integration-of-the-ads",
        owner="recommendations-team",
        role="submitter",
        created_at=TIME,
        expires_at=TIME + timedelta(days=90),
        last_used_at=TIME,
    ),
    ApiKey(id=KEY_ID, name="admin", owner="admin", role="admin", created_at=TIME),
]
DERIVED = DerivedNumber(name="dense_optimizer.schedule.warmup_steps", value=123_456, unit="steps", reason="a " * 60)
ARTIFACTS = [
    Artifact(name=f"checkpoints/step-{10**8}", kind="checkpoint", num_bytes=123_456_789_012, modified_at=TIME),
    Artifact(name="attempt-123/logs/launch-node-123.log", kind="log", num_bytes=123_456, modified_at=TIME),
]
TABLES = {
    "jobs": (lambda: tables.make_jobs_table([Job(**JOB), Job(**JOB | {"owner": "b"})]), [JOB_ID, "RECOVERING", "93%"]),
    "own jobs": (lambda: tables.make_jobs_table([Job(**JOB)]), [JOB_ID, "behind_reservation", "0.7812"]),
    "losses": (lambda: tables.make_losses_table([(make_details(), [make_checkpoint()] * 3)]), [JOB_ID, "3, 3.0 TB"]),
    "job": (
        lambda: tables.make_job_table(
            make_details(), [Attempt(id="att", number=1, state="RUNNING", started_at=TIME)], make_checkpoint()
        ),
        [JOB_ID, "step 1,234,567/1,500,000", "recommendations-team (key laptop of ann)"],
    ),
    "events": (lambda: tables.make_events_table(EVENTS), [JOB_ID, "waiting_for_memory", "early_stopping_of_the_run"]),
    "keys": (
        lambda: tables.make_keys_table(KEYS),
        [KEY_ID, "submitter", f"{TIME + timedelta(days=90):%Y-%m-%d}", "never"],
    ),
    "derived": (lambda: tables.make_derived_table([DERIVED]), ["123,456 steps"]),
    "artifacts": (
        lambda: tables.make_artifacts_table(ARTIFACTS),
        ["checkpoints/step-100000000", "123.5 GB", "launch-node-123.log"],
    ),
    "result": (lambda: tables.make_result_table({"model": f"{RUN}/model", "num_steps": 10**9}), ["1,000,000,000"]),
    "comparison": (lambda: make_comparison_table(make_comparison()), ["0.7812 ± 0.0021", "12,345.6", "1,234,567,890"]),
    "advice": (
        lambda: make_advice_table(advise({524_288: 1}, NoiseInterval(2e4, 3e4, 4e4))),
        ["524,288", "this run", "1,048,576"],
    ),
    "trials": (lambda: make_finals_table(make_tuning()), ["0.44123", "0.7812 ± 0.0021", "3 h 25 min"]),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_fits_and_nothing_that_must_be_whole_is_cut(name: str) -> None:
    make, whole = TABLES[name]
    check(print_at_80(lambda console: console.print(make())), whole)


def test_the_columns_of_data_fit() -> None:
    top = {"10": 0.1234, "100": 0.5678, "1000": 0.999}
    sizes = [{"min_count": count, "num_rows": 292_775_614, "num_bytes": 10**11} for count in (1, 2, 5, 10, 20)]
    report = {
        "num_rows": 4_373_472_329,
        "num_rows_looked_at": 1_000_000,
        "num_bad_rows": 1,
        "faults": ["day_0.tsv, line 123456789, column C12: 'abcdefghijklmn' is no hexadecimal number"],
        "label_rate": 0.0323,
        "parts": [{"label_rate": 0.0323}] * 10,
        "dense": [
            {
                "name": "time_since_last_click_seconds",
                "missing_share": 0.4512,
                "num_distinct": 123_456,
                "quantiles": {"0.01": -1_234_567.891, "0.5": 12.345678, "0.99": 1_234_567_891.5},
                "min": -1.2345e-12,
                "max": 65_535_123.5,
                "mean": 1234.5678,
                "auc": 0.5612,
            }
        ],
        "categorical": [
            {
                "name": COLUMN,
                "target": None,
                "is_multi_hot": True,
                "missing_share": 0.1234,
                "num_distinct": 292_775_614,
                "num_seen_once": 112_775_614,
                "covered_by": top,
                "auc": 0.7123,
                "top_values": [["68fd1e64", 1], ["be589b51", 1]],
                "tables": sizes,
                "hash_size": 40_000_000,
                "why_hash": "more rows than samples",
            }
        ],
        "min_count": 1,
        "embedding_dim": 128,
        "warnings": [],
    }
    lines = print_at_80(lambda console: print_report(console, report))
    check(lines, ["-1.235e-12", "6.554e7", "1.235e9", "0.5612", "292,775,614", "112,775,614", "99.9 %", "93.1 GiB"])


def test_a_plan_fits() -> None:
    document = {
        "name": JOB["name"],
        "data": {"train": ["a"], "format": "criteo_tsv", "vocabulary": {"hash_size": 40_000_000}},
        "batch": {"global_size": 524_288},
        "model": {"embedding_dim": 64},
        "resources": {"workers_per_node": 8, "gpus_per_worker": 1, "nodes": 4},
    }
    resolved = resolve(JobConfig.model_validate(document))
    parts = dict.fromkeys(PART_DESCRIPTIONS, 1.234)
    result = json.loads(make_plan_line(resolved, None)) | {"estimated": parts, "measured": parts}
    lines = print_at_80(lambda console: print_plan(console, resolved, result))
    start, end = lines.index("tables"), next(n for n, line in enumerate(lines) if line.startswith("the slowest"))
    in_tables = [line for line in lines[start:end] if not line.startswith("the fullest rank")]
    check(in_tables, ["40,000,000", "160.0 MB", "316.7 MB", "· 16 %", "all_reduce", "table_update"])
    check([line for line in lines if "measured" in line or " s " in line], ["1.23 s"])


def test_a_profile_fits(tmp_path: Path) -> None:
    directory = ProfileDirectory(tmp_path)
    StepProfile(
        rank=0,
        num_ranks=1,
        first_step=1_000_006,
        num_steps=10,
        seconds_per_step=12.345,
        parts=dict.fromkeys(PART_DESCRIPTIONS, 1.2345),
        exchanges=[ExchangeProfile(kind="forward", in_flight_seconds=1.2, waited_seconds=0.3, sent_bytes=123_456_789)],
        operators=[OperatorTime(name=f"fbgemm::{'lookup_' * 12}", seconds_per_step=1.5, calls_per_step=123_456.0)],
    ).write(directory.figures(0))
    lines = print_at_80(lambda console: print_profile(console, directory))
    check([line for line in lines if not line.startswith("traces")], ["1,234.50", "123,456"])


def check(lines: list[str], whole: list[str]) -> None:
    assert lines
    assert [line for line in lines if len(line) > WIDTH] == []
    for word in whole:
        assert any(word in line for line in lines), f"{word} is not whole in\n" + "\n".join(lines)
