from pathlib import Path

from dlrm.config import JobConfig, resolve
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
