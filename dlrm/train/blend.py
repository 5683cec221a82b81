"""Blends the model that a run leaves with logistic regression, and says what came of it."""

import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from dlrm.data.dataset import Dataset
from dlrm.exported_model.blend import UNBLENDED, Blend, score_source, try_blend
from dlrm.exported_model.export import read_model
from dlrm.metrics.binary import compute_binary_metrics
from dlrm.model import FirstOrder
from dlrm.record import BLEND_FAILED, BLEND_SHARE, BLENDED
from dlrm.train.context import RunContext

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BlendedModel:
    """A first-order part for a model, and how good both are together."""

    first_order: FirstOrder | None
    """Part that the model is kept with; None where it is best alone."""
    metrics: dict[str, float | None]
    """Share of logistic regression; where it is above 0, metrics of the blend too, by name: on the evaluation rows, and
    its log-loss on the validation rows."""


def blend_chosen_model(context: RunContext, dataset: Dataset, checkpoint: Path) -> BlendedModel | None:
    """Blend the model of a checkpoint, where the job asks for it. Not collective.

    dataset: as opened, before validation rows are held out. Returns None where no blend was tried, or it failed. A
    failure is reported, and never raised.
    """
    job, reporter = context.resolved.job, context.reporter
    if job.run.blend == "none":
        return None
    reporter.progress("evaluating", "blending the model with logistic regression")
    try:
        model = read_model(checkpoint, job.model, dataset.schema)
        blend = try_blend(model, dataset, job, lambda message: reporter.event(BLEND_FAILED, message))
        if blend is None:
            return None
        reporter.event(BLENDED, _describe(blend), share=blend.share, num_train_rows=blend.num_train_rows)
        share: dict[str, float | None] = {BLEND_SHARE: blend.share}
        if blend.first_order is None:
            return BlendedModel(None, share)
        model.first_order = blend.first_order
        scored = score_source(model, dataset.evaluation)
        metrics = compute_binary_metrics(scored.labels, scored.logits, scored.weights)
    except Exception as error:
        # Whatever it is, the model is trained and must be written.
        log.exception("the model could not be blended")
        reporter.event(BLEND_FAILED, f"{UNBLENDED}, since it could not be blended: {error}")
        return None
    return BlendedModel(blend.first_order, {**share, **asdict(metrics), "validation_log_loss": blend.log_loss})


def _describe(blend: Blend) -> str:
    figures = (
        f"log-loss on the {blend.num_rows:,} validation rows {blend.model_log_loss:.4f}, of logistic regression "
        f"{blend.logistic_log_loss:.4f}"
    )
    if blend.first_order is None:
        return f"the model is not blended with logistic regression, since it is best alone: {figures}"
    return (
        f"the logit of the model that is kept is {1 - blend.share:.1f} times that of the trained model plus "
        f"{blend.share:.1f} times that of logistic regression, fitted on {blend.num_train_rows:,} training rows: "
        f"{figures}, of both {blend.log_loss:.4f}"
    )
