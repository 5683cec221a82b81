"""The curve of a run, from what its ranks have reported."""

from pathlib import Path

from cli.experiments.trials.ended_run import read_curve
from dlrm.record import EvaluationReport, RunDirectory, StepReport


def test_a_damaged_line_of_a_spool_is_left_out(tmp_path: Path) -> None:
    reports = [
        StepReport(
            step=1,
            num_steps=2,
            num_samples=64,
            loss=0.6,
            dense_learning_rate=0.1,
            table_learning_rate=0.1,
            samples_per_second=1.0,
        ),
        *(
            EvaluationReport(
                step=step,
                num_rows=9,
                auc=auc,
                log_loss=0.6,
                normalized_entropy=0.9,
                calibration=1.0,
                constant_log_loss=0.7,
                seconds=1.0,
            )
            for step, auc in ((1, 0.6), (2, 0.7))
        ),
    ]
    lines = [report.model_dump_json().encode() for report in reports]
    spool = RunDirectory(tmp_path).attempt(1).spool_file(0, "metrics")
    spool.parent.mkdir(parents=True)
    spool.write_bytes(b"\n".join([lines[0], b'{"seq": 7, "kind": "st\x00\x00', *lines[1:], b""]))
    assert [(point.step, point.auc) for point in read_curve(RunDirectory(tmp_path), 1)] == [(1, 0.6), (2, 0.7)]
