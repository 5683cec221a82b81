"""Blends a trained model with logistic regression: the logit becomes the weighted mean of both."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from dlrm.config import JobConfig
from dlrm.data.dataset import Dataset
from dlrm.data.rows import Rows, RowSource
from dlrm.data.split import hold_out_validation
from dlrm.exported_model.score import score
from dlrm.metrics.binary import log_loss
from dlrm.model import FirstOrder, PlainModel, encode_table_name
from dlrm.yardsticks.logistic import LogisticRegression, fit_logistic_regression
from dlrm.yardsticks.rows import ScoredRows, compute_max_bytes, score_rows

UNBLENDED = "the model is left as it was trained"
SHARES = [tenths / 10 for tenths in range(11)]
"""Shares of logistic regression that are tried. Finer ones would follow the chance of the validation rows."""
PRIOR_SHARE, PRIOR_DEVIATION = 0.5, 0.25
"""Mean and standard deviation of the normal prior of the share: 0 and 1 are two deviations away. A few validation rows
say little, and equal shares were better than no blend in the mean of every size of data (benchmarks/experiments.md)."""


@dataclass(frozen=True)
class Blend:
    """The weighted mean of a model and logistic regression that suits the validation rows."""

    share: float
    """Weight of logistic regression; the model's is 1 - share."""
    num_rows: int
    """Number of validation rows."""
    log_loss: float
    """Log-loss of the blend on the validation rows, as all of these at true rates."""
    model_log_loss: float
    logistic_log_loss: float
    """Log-loss of logistic regression on the validation rows, fitted on the others."""
    first_order: FirstOrder | None
    """Logistic regression, fitted again on the training rows with the validation rows; None if its share is 0."""
    num_train_rows: int
    """Number of rows that logistic regression was fitted on last: up to MAX_ROWS that fit the memory."""
    validation: ScoredRows
    """Validation rows as sampled, scored by the blend with logistic regression fitted on the others."""

    def describe(self) -> str:
        """Describe what the model is blended with, and why, in one sentence."""
        figures = (
            f"log-loss on the {self.num_rows:,} validation rows {self.model_log_loss:.4f}, of logistic regression "
            f"{self.logistic_log_loss:.4f}"
        )
        if self.first_order is None:
            return f"the model is not blended with logistic regression, since it is best alone: {figures}"
        is_guess = self.log_loss > min(self.model_log_loss, self.logistic_log_loss)
        why = "; a share nearer to one half than these few rows alone would choose" if is_guess else ""
        return (
            f"the logit of the model that is kept is {1 - self.share:.1f} times that of the trained model plus "
            f"{self.share:.1f} times that of logistic regression, fitted on {self.num_train_rows:,} training rows: "
            f"{figures}, of both {self.log_loss:.4f}{why}"
        )


def try_blend(model: PlainModel, dataset: Dataset, job: JobConfig, tell: Callable[[str], None]) -> Blend | None:
    """Blend a trained model as `fit_blend` does, if the job asks for it.

    Returns None if the model is left as it was trained; the callback gets the reason if the job asks for a blend.
    """
    if job.run.blend == "none":
        return None
    try:
        blend = fit_blend(model, dataset, job)
    except ValueError as error:
        tell(f"{UNBLENDED}, since it could not be blended: {error}")
        return None
    if blend is None:
        tell(f"{UNBLENDED}: there are no validation rows to choose a blend by")
    return blend


def fit_blend(model: PlainModel, dataset: Dataset, job: JobConfig) -> Blend | None:
    """Blend a trained model with logistic regression.

    model: without a first-order part. dataset: as opened, with validation rows among the training rows, as `job` holds
    them out. Returns None if there are no validation rows to choose by. Raises ValueError if all weights of the rows to
    fit on, or of the validation rows, are 0, and if a logit is NaN.
    """
    run = job.run
    held_out = hold_out_validation(dataset, run.validation_fraction, job.data.split, run.seed)
    if held_out.validation is None:
        return None
    fit = partial(
        fit_logistic_regression,
        max_bytes=compute_max_bytes(job.resources.memory),
        is_mean=job.model.pooling == "mean",
    )
    logistic = fit(held_out.train)
    by_logistic = _score_all(held_out.validation, logistic.predict)
    by_model = score_source(model, held_out.validation)
    # Of the rows as sampled: at true rates the few positives would weigh next to nothing against the prior.
    losses = {share: _compute_loss(_mix(by_model, by_logistic, share)) for share in SHARES}
    share = _choose_share(losses, _count_effective_rows(by_model))
    # The validation rows have chosen the weights: what is fitted with so few parameters may learn from them too.
    kept = fit(dataset.train) if share > 0.0 else logistic
    first_order = _make_first_order(kept, dataset, job, share) if share > 0.0 else None
    num_rows = held_out.validation.num_rows
    blended = _mix(by_model, by_logistic, share)
    own, model_loss, logistic_loss = (
        _compute_loss(rows.correct(job.data.negative_sampling)) for rows in (blended, by_model, by_logistic)
    )
    return Blend(share, num_rows, own, model_loss, logistic_loss, first_order, kept.num_rows, blended)


def score_source(model: PlainModel, rows: RowSource) -> ScoredRows:
    """Score all rows of a source with a model."""
    return _score_all(rows, lambda piece: score(model, piece).astype(np.float64))


def _score_all(rows: RowSource, predict: Callable[[Rows], NDArray[np.float64]]) -> ScoredRows:
    return score_rows(rows, np.arange(rows.num_rows), predict)


def _mix(by_model: ScoredRows, by_logistic: ScoredRows, share: float) -> ScoredRows:
    return replace(by_model, logits=(1.0 - share) * by_model.logits + share * by_logistic.logits)


def _compute_loss(rows: ScoredRows) -> float:
    return log_loss(rows.labels, rows.logits, rows.weights)


def _choose_share(losses: Mapping[float, float], num_rows: float) -> float:
    """Choose the share with the greatest posterior density, given its prior and the labels of the validation rows.

    losses: mean log-loss of the validation rows, by share. num_rows: their effective number.
    """
    return min(
        losses, key=lambda share: num_rows * losses[share] + 0.5 * ((share - PRIOR_SHARE) / PRIOR_DEVIATION) ** 2
    )


def _count_effective_rows(scored: ScoredRows) -> float:
    """Count rows by their weights, as Kish (1965) does: n equal weights are n rows, whatever their scale."""
    if scored.weights is None:
        return len(scored.labels)
    weights = scored.weights.astype(np.float64)
    return float(weights.sum() ** 2 / np.square(weights).sum())


def _make_first_order(logistic: LogisticRegression, dataset: Dataset, job: JobConfig, share: float) -> FirstOrder:
    """Make the module of a fitted logistic regression."""
    features = dataset.schema.features
    num_dense = dataset.schema.num_dense
    table_rows = {feature.name: feature.num_ids for feature in features}
    bias, dense, *tables = np.split(
        logistic.weights.astype(np.float32), np.cumsum([1, num_dense, *(feature.num_ids for feature in features)])[:-1]
    )
    weights = {"bias": bias, "dense": dense} | {
        f"tables.{encode_table_name(feature.name)}.weight": table[:, None]
        for feature, table in zip(features, tables, strict=True)
    }
    first_order = FirstOrder(num_dense, table_rows, job.model.pooling, share)
    first_order.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()}, assign=True)
    return first_order
