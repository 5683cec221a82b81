"""Blends a trained model with logistic regression and recalibrates it, as far as its job asks for it."""

from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
import torch

from dlrm.config import JobConfig
from dlrm.data.dataset import Dataset
from dlrm.data.groups import find_grouping
from dlrm.data.rows import RowSource
from dlrm.data.split import hold_out_validation, sample_train_rows
from dlrm.exported_model.assemble import make_output_map
from dlrm.exported_model.blend import UNBLENDED, Blend, score_source, try_blend
from dlrm.exported_model.blend_file import BlendReport, RefinedOutput
from dlrm.exported_model.layout import Recalibration
from dlrm.exported_model.recalibrate import fit_recalibration
from dlrm.metrics.binary import compute_binary_metrics
from dlrm.model import PlainModel
from dlrm.record import RECALIBRATION_FIGURES, UNCALIBRATED
from dlrm.yardsticks.rows import ScoredRows

UNCALIBRATED_MODEL = "the model is not recalibrated"


def refine_and_measure(model: PlainModel, dataset: Dataset, job: JobConfig) -> RefinedOutput:
    """Blend a trained model as `fit_blend` does, then recalibrate it, as far as the job asks for it; measure the result
    on all evaluation rows.

    model: gets the first-order part. A part that could not be made or measured is left out, and the report says why.
    """
    blend_notes: list[str] = []
    notes: list[str] = []
    blend = try_blend(model, dataset, job, blend_notes.append)
    if blend is not None:
        model.first_order = blend.first_order
        blend_notes.append(blend.describe())
    recalibration = try_recalibrate(model, dataset, job, blend, notes.append)
    metrics: dict[str, float | None] = {}
    if model.first_order is not None or recalibration is not None:
        try:
            metrics = _measure(model, recalibration, dataset, job)
        except ValueError as error:
            message = f"{UNBLENDED}, since the result cannot be measured: {error}"
            return RefinedOutput(BlendReport(message=message, recalibration_message=message))
    if blend is not None and blend.first_order is not None:
        metrics["validation_log_loss"] = blend.log_loss
        # They are known of the trained model alone.
        metrics |= dict.fromkeys(("validation_auc", "validation_calibration"))
    report = BlendReport(
        message="".join(blend_notes),
        share=None if blend is None else blend.share,
        num_train_rows=None if blend is None else blend.num_train_rows,
        recalibration=recalibration,
        recalibration_message="".join(notes),
        metrics=metrics,
    )
    return RefinedOutput(report, model.first_order)


def try_recalibrate(
    model: PlainModel, dataset: Dataset, job: JobConfig, blend: Blend | None, tell: Callable[[str], None]
) -> Recalibration | None:
    """Fit the map of the logits that the job asks for on the validation rows; None if it asks for none.

    model: with its first-order part. blend: its blend, whose scores of the validation rows are used: the first-order
    part itself is fitted on these rows too. If no map can be fitted, the callback gets the reason.
    """
    kind = job.run.recalibrate
    if kind is None:
        return None
    rows = _score_validation(model, dataset, job) if blend is None else blend.validation
    if rows is None:
        tell(f"{UNCALIBRATED_MODEL}: there are no validation rows to fit on")
        return None
    try:
        found = fit_recalibration(kind, rows, job.data.negative_sampling)
    except ValueError as error:
        tell(f"{UNCALIBRATED_MODEL}: {error}")
        return None
    size = f"logit times {found.slope:.4f} plus {found.offset:.4f}"
    if kind == "isotonic":
        size = f"{len(set(found.after)):,} levels"
    tell(f"the model is recalibrated ({kind}: {size}) on its {len(rows.labels):,} validation rows")
    return found


def _score_validation(model: PlainModel, dataset: Dataset, job: JobConfig) -> ScoredRows | None:
    run = job.run
    source = hold_out_validation(dataset, run.validation_fraction, job.data.split, run.seed).validation
    return None if source is None else score_source(model, source)


def _measure(
    model: PlainModel, recalibration: Recalibration | None, dataset: Dataset, job: JobConfig
) -> dict[str, float | None]:
    """Measure a model on the evaluation rows, before and after its recalibration if there is one, and on the sample of
    training rows that the evaluations of its run use, if there is one.

    Raises ValueError if a logit is NaN.
    """
    run, share = job.run, job.data.negative_sampling
    uncalibrated = score_source(model, dataset.evaluation).correct(share)
    rows = _recalibrate(uncalibrated, recalibration)
    metrics: dict[str, float | None] = asdict(compute_binary_metrics(rows.labels, rows.logits, rows.weights))
    grouping = find_grouping(run.group_by, run.recall_at, dataset.schema, dataset.encoders)
    if grouping is not None:
        groups = grouping.read_source(dataset.evaluation)
        metrics |= grouping.measure(rows.labels, rows.logits, rows.weights, groups)
    if recalibration is not None:
        before = compute_binary_metrics(uncalibrated.labels, uncalibrated.logits, uncalibrated.weights)
        metrics |= name_uncalibrated(asdict(before))
    held_out = hold_out_validation(dataset, run.validation_fraction, job.data.split, run.seed)
    sample: RowSource | None = sample_train_rows(held_out, run.num_train_eval_rows)
    if sample is not None:
        trained = _recalibrate(score_source(model, sample).correct(share), recalibration)
        measured = compute_binary_metrics(trained.labels, trained.logits, trained.weights)
        metrics |= {"train_auc": measured.auc, "train_log_loss": measured.log_loss}
    return metrics


def name_uncalibrated(metrics: dict[str, float | None]) -> dict[str, float | None]:
    """Return the metrics of a model before its recalibration by the names that the metrics of an outcome have."""
    return {name: metrics[name.removeprefix(UNCALIBRATED)] for name in RECALIBRATION_FIGURES}


def _recalibrate(rows: ScoredRows, recalibration: Recalibration | None) -> ScoredRows:
    output_map = make_output_map(None, recalibration)
    if output_map is None:
        return rows
    return replace(rows, logits=output_map(torch.from_numpy(rows.logits.astype(np.float64))).numpy())
