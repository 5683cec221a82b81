"""Compares the model of a run with simple models, and warns where it is worse."""

import json
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dlrm.record import (
    FEW_EVALUATION_ROWS,
    YARDSTICKS,
    EvaluationSource,
    SpoolReader,
    YardstickProgress,
    YardstickResult,
    format_auc,
    list_quality_warnings,
)
from dlrm.train.child_program import run_program
from dlrm.train.context import RunContext
from dlrm.train.finishing import Finishing

log = logging.getLogger(__name__)

MAX_SECONDS = 300.0
"""Seconds that simple models may take in all; what is measured by then counts."""
YARDSTICK, YARDSTICKS_FAILED = "yardstick", "yardsticks_failed"
"""Names of the events."""


def compare_with_yardsticks(
    context: RunContext, metrics: Mapping[str, float | None], finishing: Finishing
) -> dict[str, float | None]:
    """Measure simple models on the rows of a run, and return `metrics` with their figures.

    metrics: final metrics of the run. Reports each result, and what the figures say against the model of the run. A
    failure is reported, too, and never raised. A stop request ends the comparison, as does MAX_SECONDS.
    """
    reporter = context.reporter
    merged = dict(metrics)
    if context.resolved.job.run.yardsticks != "none":
        try:
            for result in _measure(context, finishing):
                merged |= result.to_metrics()
                reporter.event(YARDSTICK, _describe(result), **result.to_metrics())
        except Exception as error:
            # Whatever it is, the model is trained and must be written.
            log.exception("simple models could not be measured")
            reporter.event(YARDSTICKS_FAILED, f"the model could not be compared with simple ones: {error}")
    data = context.resolved.job.data
    for warning in list_quality_warnings(merged, EvaluationSource.of_job(data.format, data.eval)):
        # The warning about few rows was given before training.
        if warning.name != FEW_EVALUATION_ROWS:
            reporter.event(warning.name, warning.message)
    return merged


def _measure(context: RunContext, finishing: Finishing) -> list[YardstickResult]:
    """Run the program that measures simple models, and return what it has measured by its end.

    Raises OSError if it cannot be started, and ValueError if it prints what is no result.
    """
    # elastic sets the threads of a rank; the other ranks are idle by now.
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    results: list[YardstickResult] = []
    with tempfile.NamedTemporaryFile() as output:
        lines = SpoolReader(Path(output.name))

        def read() -> None:
            for line in lines.read():
                if "kind" not in json.loads(line):
                    results.append(YardstickResult.model_validate_json(line))
                elif (progress := YardstickProgress.model_validate_json(line)).done_fraction:
                    finishing.move(progress.done_fraction, progress.detail)
                else:
                    finishing.begin(progress.name)

        failure = run_program(
            "dlrm.programs.yardsticks",
            [str(context.directory.path)],
            context.stop,
            output=output,
            environment=environment,
            watch=read,
            max_seconds=MAX_SECONDS,
        )
        read()
    if failure is not None:
        context.reporter.event(YARDSTICKS_FAILED, f"the comparison of the model with simple ones {failure}")
    return results


def _describe(result: YardstickResult) -> str:
    auc = "none" if result.auc is None else format_auc(result.auc, result.auc_standard_error)
    return (
        f"{YARDSTICKS[result.name]}: AUC {auc}, log-loss {result.log_loss:.4f}, from {result.num_train_rows:,} "
        f"training rows in {result.seconds:.1f} s"
    )
