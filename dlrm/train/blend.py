"""Blends the model that a run leaves with logistic regression, in a process of its own, and says what came of it."""

import logging
from dataclasses import dataclass, field
from pathlib import Path

from dlrm.data.rows import DataSchema
from dlrm.exported_model.blend import UNBLENDED
from dlrm.exported_model.blend_file import BlendOutput, read_blend
from dlrm.model import FirstOrder
from dlrm.record import BLEND_FAILED, BLEND_SHARE, BLENDED
from dlrm.train.child_program import STOPPED, run_program
from dlrm.train.context import RunContext
from dlrm.train.finishing import BLEND, Finishing

log = logging.getLogger(__name__)


class BlendStoppedError(Exception):
    """Exception for a stop request before the model was blended: the next attempt blends it."""


@dataclass(frozen=True)
class BlendedModel:
    """A first-order part for a model, and how good both are together."""

    first_order: FirstOrder | None = None
    """Part that the model is kept with; None if it is kept alone."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    """Share of logistic regression, if one was chosen. If it is above 0, metrics of the blend too, by name: on the
    evaluation rows, and its log-loss on the validation rows."""


def blend_chosen_model(context: RunContext, schema: DataSchema, checkpoint: Path, finishing: Finishing) -> BlendedModel:
    """Blend the model of a checkpoint, if the job asks for it and a blend can be chosen. Not collective.

    A failure is reported, and never raised. Raises BlendStoppedError at once if a stop is requested: a model that
    depended on that moment could not be made again. For the same reason there is no limit of time.
    """
    reporter = context.reporter
    if context.resolved.job.run.blend == "none":
        return BlendedModel()
    finishing.begin(BLEND)
    try:
        output = _run_program(context, schema, checkpoint)
    except BlendStoppedError:
        reporter.event("stop_requested", "stops before the model is blended with logistic regression")
        raise
    except Exception as error:
        # Whatever it is, the model is trained and must be written.
        log.exception("the model could not be blended")
        reporter.event(BLEND_FAILED, f"{UNBLENDED}, since it could not be blended: {error}")
        return BlendedModel()
    report = output.report
    if report.share is None:
        reporter.event(BLEND_FAILED, report.message)
        return BlendedModel()
    reporter.event(BLENDED, report.message, share=report.share, num_train_rows=report.num_train_rows)
    return BlendedModel(output.first_order, {BLEND_SHARE: report.share, **report.metrics})


def _run_program(context: RunContext, schema: DataSchema, checkpoint: Path) -> BlendOutput:
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
