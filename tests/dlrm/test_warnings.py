import json
from pathlib import Path

import pytest

from dlrm.config import JobConfig, resolve
from dlrm.programs.plan import make_plan_line
from dlrm.record import WARNINGS, AttemptDirectory, EventReport, SpoolReader, parse_report
from dlrm.reporting.reporter import Reporter
from dlrm.train.run_events import report_warnings


def test_a_capped_warm_up_is_told_to_whoever_started_the_run(tmp_path: Path):
    schedule = {"scaling": "legw", "warmup_fraction": 0.2}
    document = {"data": {"format": "synthetic"}, "dense_optimizer": {"schedule": schedule}}
    attempt = AttemptDirectory(tmp_path)
    attempt.create()
    reporter = Reporter(attempt, rank=0)
    report_warnings(reporter, resolve(JobConfig.model_validate(document)))
    reporter.close()
    (event,) = [parse_report(line) for line in SpoolReader(attempt.spool_file(0, "events")).read()]
    assert isinstance(event, EventReport)
    assert event.name == "warmup_capped"
    assert event.name in WARNINGS
    assert "dense_optimizer.schedule: scaling legw makes the warm-up 8 times as long, 1.6 of the run" in event.message
    assert "a warmup_fraction of up to 0.0625" in event.message


@pytest.mark.parametrize(
    ("flags", "precision", "gpus_per_worker", "is_told"),
    [
        ("flags\t\t: fpu avx2 fma", "bf16", 0, True),
        ("flags\t\t: fpu avx512f avx512_bf16", "bf16", 0, False),
        ("flags\t\t: fpu amx_bf16 amx_tile", "bf16", 0, False),
        ("Features\t: fp asimd bf16", "bf16", 0, False),
        ("Features\t: fp asimd", "bf16", 0, True),
        ("vendor_id\t: unknown", "bf16", 0, False),
        ("flags\t\t: fpu avx2", "fp32", 0, False),
        ("flags\t\t: fpu avx2", "bf16", 1, False),
    ],
)
def test_bf16_is_warned_of_by_plan_and_run_where_the_processor_lacks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str, precision: str, gpus_per_worker: int, *, is_told: bool
):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{flags}\n")
    monkeypatch.setattr("hostinfo.limits.CPUINFO", tmp_path / "cpuinfo")
    resources = {"workers_per_node": 1, "gpus_per_worker": gpus_per_worker}
    synthetic = {"format": "synthetic", "synthetic": {"num_rows": 10_000}}
    job = resolve(JobConfig.model_validate({"data": synthetic, "precision": precision, "resources": resources}))
    attempt = AttemptDirectory(tmp_path)
    attempt.create()
    reporter = Reporter(attempt, rank=0)
    report_warnings(reporter, job)
    reporter.close()
    events = [parse_report(line) for line in SpoolReader(attempt.spool_file(0, "events")).read()]
    assert [event.name for event in events if isinstance(event, EventReport)] == ["slow_precision"] * is_told
    told = [
        warning for warning in json.loads(make_plan_line(job, None))["warnings"] if warning.startswith("precision:")
    ]
    assert len(told) == is_told
    # Nobody knows the machine that a launcher finds.
    elsewhere = json.loads(make_plan_line(job, None, place="unseen"))["warnings"]
    assert not [warning for warning in elsewhere if warning.startswith("precision:")]
