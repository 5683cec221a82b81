"""Evaluation curve of a run, from what its attempts have reported."""

from collections.abc import Sequence

from cli.experiments.sweep.results import CurvePoint
from dlrm.record import EvaluationReport, RunDirectory, SpoolReader, StartReport, StepReport, parse_whole_reports


def read_curve(directory: RunDirectory, num_attempts: int) -> list[CurvePoint]:
    """Read the evaluations of a run; what a later attempt has repeated counts once."""
    steps: list[StepReport] = []
    evaluations: list[EvaluationReport] = []
    for number in range(1, num_attempts + 1):
        reader = SpoolReader(directory.attempt(number).spool_file(0, "metrics"))
        while lines := reader.read():
            for report in parse_whole_reports(lines):
                if isinstance(report, StartReport):
                    steps = [step for step in steps if step.step <= report.step]
                    evaluations = [known for known in evaluations if known.step <= report.evaluated_step]
                elif isinstance(report, StepReport):
                    steps.append(report)
                elif isinstance(report, EvaluationReport):
                    evaluations.append(report)
    return make_curve(steps, evaluations)


def make_curve(steps: Sequence[StepReport], evaluations: Sequence[EvaluationReport]) -> list[CurvePoint]:
    """Return the points of a curve, each with the samples and the noise scale of the step that was reported last."""
    points: list[CurvePoint] = []
    for evaluation in evaluations:
        before = [step for step in steps if step.step <= evaluation.step]
        last = max(before, key=lambda step: step.step) if before else None
        points.append(
            CurvePoint(
                step=evaluation.step,
                # A long run reports only some of its steps.
                num_samples=last and round(last.num_samples * evaluation.step / last.step),
                auc=evaluation.auc,
                log_loss=evaluation.log_loss,
                validation_log_loss=evaluation.validation_log_loss,
                train_auc=evaluation.train_auc,
                train_log_loss=evaluation.train_log_loss,
                noise_scale=last and last.noise_scale,
            )
        )
    return points
