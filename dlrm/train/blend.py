"""Blends the model that a run leaves with logistic regression, and recalibrates it, in a process of its own; says what
came of it."""

import logging
from dataclasses import dataclass, field
from pathlib import Path

from dlrm.data.rows import DataSchema
from dlrm.exported_model.blend import UNBLENDED
from dlrm.exported_model.blend_file import RefinedOutput, read_blend
from dlrm.exported_model.layout import Recalibration
from dlrm.model import FirstOrder
from dlrm.record import BLEND_FAILED, BLEND_SHARE, BLENDED, RECALIBRATED, RECALIBRATION_FAILED
from dlrm.train.child_program import STOPPED, run_program
from dlrm.train.context import RunContext
from dlrm.train.finishing import BLEND, Finishing

log = logging.getLogger(__name__)


class BlendStoppedError(Exception):
    """Exception for a stop request before the model was blended or recalibrated: the next attempt does it."""


@dataclass(frozen=True)
class RefinedModel:
    """Additions to a trained model, and how good it is with them."""

    first_order: FirstOrder | None = None
    """Part that the model is blended with; None if it is kept alone."""
    recalibration: Recalibration | None = None
    """Map of the logits; None if they are kept as they are."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    """Share of logistic regression, if one was chosen. If it is above 0, or there is a map, metrics of the result too,
    by name: on the evaluation rows, and the log-loss of a blend on the validation rows."""


def refine_chosen_model(
    context: RunContext, schema: DataSchema, checkpoint: Path, finishing: Finishing
) -> RefinedModel:
    """Blend and recalibrate the model of a checkpoint, as far as the job asks for it. Not collective.

    A failure is reported, and never raised. Raises BlendStoppedError at once if a stop is requested: a model that
    depended on that moment could not be made again. For the same reason there is no limit of time.
    """
    reporter, run = context.reporter, context.resolved.job.run
    is_blended, is_recalibrated = run.blend != "none", run.recalibrate is not None
    if not (is_blended or is_recalibrated):
        return RefinedModel()
    finishing.begin(BLEND)
    failures = [
        name for name, is_asked in ((BLEND_FAILED, is_blended), (RECALIBRATION_FAILED, is_recalibrated)) if is_asked
    ]
    try:
        output = _run_program(context, schema, checkpoint)
    except BlendStoppedError:
        reporter.event("stop_requested", "stops before the model is blended or recalibrated")
        raise
    except Exception as error:
        # Whatever it is, the model is trained and must be written.
        log.exception("the model could not be blended or recalibrated")
        for name in failures:
            words = "blended" if name == BLEND_FAILED else "recalibrated"
            reporter.event(name, f"{UNBLENDED}, since it could not be {words}: {error}")
        return RefinedModel()
    report = output.report
    metrics = dict(report.metrics)
    if is_recalibrated:
        name = RECALIBRATION_FAILED if report.recalibration is None else RECALIBRATED
        reporter.event(name, report.recalibration_message)
    if is_blended and report.share is None:
        reporter.event(BLEND_FAILED, report.message)
    elif is_blended:
        reporter.event(BLENDED, report.message, share=report.share, num_train_rows=report.num_train_rows)
        metrics[BLEND_SHARE] = report.share
    return RefinedModel(output.first_order, report.recalibration, metrics)


def _run_program(context: RunContext, schema: DataSchema, checkpoint: Path) -> RefinedOutput:
    """Run the program that blends, and read what it has made.

    Raises BlendStoppedError, RuntimeError if the program fails, and whatever starting it and reading its file raise.
    """
    path = context.directory.blend
    try:
        failure = run_program("dlrm.programs.blend", [str(context.directory.path), str(checkpoint)], context.stop)
        if failure == STOPPED:
            raise BlendStoppedError
        if failure is not None:
            raise RuntimeError(f"the program that blends it {failure}")
        return read_blend(path, context.resolved.job.model, schema)
    finally:
        path.unlink(missing_ok=True)
