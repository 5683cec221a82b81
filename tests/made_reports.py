"""Reports that a test makes up."""

from typing import Any

from dlrm.record import EvaluationReport, StepReport


def make_step(number: int, **changes: Any) -> StepReport:
    report = StepReport(
        step=number,
        num_steps=100,
        num_samples=64 * number,
        loss=1.0 / number,
        dense_learning_rate=0.1,
        table_learning_rate=0.01,
        samples_per_second=100.0,
    )
    return report.model_copy(update=changes)


def make_step_line(seq: int, **changes: Any) -> str:
    """Make line `seq` of a stream: a step of that number, of ten."""
    return make_step(seq, **{"seq": seq, "time": 1e9 + seq, "num_steps": 10, **changes}).model_dump_json()


def make_evaluation(number: int, **changes: Any) -> EvaluationReport:
    report = EvaluationReport(
        step=number,
        num_rows=9,
        auc=0.5 + number / 1000,
        log_loss=0.5,
        normalized_entropy=0.9,
        calibration=1.0,
        constant_log_loss=0.6,
        seconds=0.1,
    )
    return report.model_copy(update=changes)
