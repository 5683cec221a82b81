"""Run settings: start, length, evaluations, checkpoints, and when to stop."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from dlrm.config.base import FALSE_IS_NULL, MAX_ROWS, MAX_SECONDS, Auto, Config
from dlrm.config.errors import invalid
from dlrm.config.schema import ColumnName
from dlrm.config.trackers import TrackersConfig

MIN_VALIDATION_FRACTION = 1e-12
"""Smallest fraction above 0 that may be held out: of MAX_ROWS rows it is one."""


def _check_validation_fraction(fraction: float) -> float:
    if 0.0 < fraction < MIN_VALIDATION_FRACTION:
        raise invalid("", f"{fraction} holds out no row of any data", f"0, or {MIN_VALIDATION_FRACTION} to 0.5")
    return fraction


RUN_IN_TIME: dict[str, Any] = {
    "epochs": 1.0,
    "validation_fraction": 0.0,
    "patience": None,
    "keep_model": "last",
    "blend": "none",
    "num_train_eval_rows": 0,
    "reset_tables_each_epoch": False,
    "eval_every_fraction": 1.0,
    "yardsticks": "none",
    "sharpness": None,
}
"""Settings of a run whose rows come in order of time: one pass, no rows of all times, and the last model."""
NumEpochs = Annotated[float, Field(gt=0.0, le=1000.0)]
ValidationFraction = Annotated[float, Field(ge=0.0, le=0.5), AfterValidator(_check_validation_fraction)]
Patience = Annotated[int, Field(ge=1, le=1000)]
Blend = Literal["logistic", "none"]
Rank = Annotated[int, Field(ge=1, le=1_000_000)]


class WarmStartConfig(Config):
    """The model from which a run starts instead of random weights. Known ids keep their rows; new ids get new rows
    after them."""

    source: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = Field(alias="from")
    """Id of a job that has succeeded, or the directory of a run or of its model; `dlrm train` also takes the URI of one
    in a bucket, such as s3://bucket/runs/monday."""
    optimizer_state: bool = False
    """Whether the optimizers continue with their state in the named run, which must have kept its checkpoints; false
    resets them."""


class SharpnessConfig(Config):
    """Measurement of a trained model: how sharp its loss is around the dense parameters, and the gap between training
    and evaluation rows. The sharpness is measured in boxes (Keskar et al. 2017, arXiv 1609.04836, metric 2.1), and by
    the largest eigenvalue of the Hessian."""

    num_rows: int = Field(default=65_536, ge=1, le=MAX_ROWS)
    """Number of training rows that it uses, spread evenly, and no more than there are evaluation rows. It makes up to
    72 passes over them, in float64 on the CPUs, and keeps their pooled embeddings in memory."""


class RunSpec(Config):
    """Settings of the run, as a job document states them. Lengths are epochs or fractions of the run, so that a
    different batch leaves them unchanged."""

    epochs: NumEpochs | Auto = "auto"
    """Number of passes over the training rows; a fraction trains on that share of them. auto: by the number of training
    rows."""
    validation_fraction: ValidationFraction | Auto = "auto"
    """Share of the training rows that are held out to choose the best model and the end of the run: with data.split
    "hash" one row in so many, rounded, with "tail" the last ones; 0 leaves the choice to the evaluation rows. auto: by
    the number of training rows where epochs is auto, otherwise 0."""
    patience: Annotated[Patience | Auto | None, FALSE_IS_NULL] = "auto"
    """Number of evaluations in a row without a better model after which the run ends; null or false: the run goes to
    its end. auto: 5 where epochs is auto, otherwise null."""
    keep_model: Literal["best", "last"] = "best"
    """Model that the run leaves: from the evaluation with the lowest log-loss, or from the last step."""
    blend: Blend | Auto = "auto"
    """Simple model that the trained one is blended with at the end of the run: the logit becomes a weighted mean of
    both, with the weights that suit the validation rows. logistic: logistic regression; none: the model stays
    as it was trained. auto: logistic with validation rows to choose by and up to 300,000 training rows; none if epochs
    or target_auc is set."""
    recalibrate: Annotated[Literal["isotonic", "platt"] | None, FALSE_IS_NULL] = None
    """Map of the model's probabilities that is fitted on the validation rows after training. isotonic: any rising one
    (Zadrozny and Elkan 2002), which makes some scores equal; platt: a linear one of the logit (Platt 1999), which keeps
    their order, for few validation rows. null or false: none."""
    group_by: Annotated[ColumnName | None, FALSE_IS_NULL] = None
    """Categorical feature of one value a row, such as a user, within whose groups the order of the evaluation rows is
    measured too: the AUC of each group with both labels, averaged by their numbers of rows (GAUC, Zhu et al. 2017,
    arXiv 1703.02091). null or false: no groups."""
    recall_at: Annotated[Annotated[list[Rank], Field(min_length=1, max_length=20)] | None, FALSE_IS_NULL] = None
    """Numbers k of rows, the best-scored of each group. recall@k is the share of the group's positives among them, and
    NDCG@k their discounted gain by the largest possible one, both in the mean over groups with a positive. null or
    false: none."""
    reset_tables_each_epoch: bool = False
    """Whether every epoch but the first begins with newly drawn tables and without their optimizer state, while the
    dense parameters go on, so that the model does not learn its training rows by heart (MEDA, Liu et al. 2023, arXiv
    2305.19531). Evaluations then wait for the end of the epoch."""
    label_smoothing: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share s of each label that is replaced by 1/2 in the training loss: y becomes (1 - s) y + s / 2 (Szegedy et al.
    2016, arXiv 1512.00567). Evaluations keep the labels as they are: predictions are then too near to 1/2. 0:
    none."""
    eval_every_fraction: float = Field(default=0.1, ge=0.001, le=1.0)
    """Share of the run from one evaluation to the next; the end is always evaluated."""
    num_train_eval_rows: int = Field(default=0, ge=0, le=MAX_ROWS)
    """Number of training rows on which every evaluation measures the model too, so that the gap between training and
    evaluation rows can be seen: the same rows every time, spread evenly, and no more than there are evaluation rows;
    0: none."""
    target_auc: float | None = Field(default=None, gt=0.5, le=1.0)
    """Evaluation AUC at which the run stops early; null: the run goes to its end."""
    checkpoint_every_seconds: float = Field(default=600.0, ge=0.1, le=MAX_SECONDS)
    """Seconds from one checkpoint to the next: the most that a crash can cost. A stop and the end always write a
    checkpoint."""
    keep_checkpoints: int = Field(default=3, ge=1, le=1000)
    """Number of newest checkpoints that are kept."""
    peer_timeout_seconds: float = Field(default=45.0, ge=5.0, le=3600.0)
    """Seconds without a sign of life after which a rank or a machine counts as lost: the attempt ends everywhere. One
    that works is never lost, however long a checkpoint or the preparation of rows takes it."""
    deltas: bool = False
    """Whether checkpoints also leave deltas, by which a loaded model follows the run: files of the rows that have
    changed since the checkpoint before, in deltas/ of the run's directory. The first checkpoint leaves a whole model,
    and the end of the run the difference to its model. `checkpoint_every_seconds` is the interval. Once the deltas take
    twice the disk of that first model, the next checkpoint leaves a whole one anew. Needs the disk of six models more,
    at most."""
    keep_scores: bool = False
    """Whether the run keeps the logit of every evaluation row, in scores/ of its directory: 4 bytes a row for each
    evaluation until the end, and then for the model that is kept alone. A blend and a recalibration are not in them."""
    warm_start: WarmStartConfig | None = None
    """Trained model from which the run starts; null: random initial weights."""
    yardsticks: Literal["all", "logistic", "none"] = "all"
    """Simple models that the trained one is compared with at the end, on the same evaluation rows. logistic: logistic
    regression; all: boosted trees too, where LightGBM or scikit-learn is installed; none: no comparison."""
    sharpness: Annotated[SharpnessConfig | None, FALSE_IS_NULL] = None
    """Measurement of how sharp the loss of the model is, before a blend; null or false: none."""
    trackers: TrackersConfig = TrackersConfig()
    """Experiment trackers that get the run's figures too, such as TensorBoard."""
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Seed of the initial weights and of the order of samples."""

    @property
    def evaluates_whole_epochs(self) -> bool:
        """Whether evaluations wait for the end of an epoch: new tables are worse until they have seen all rows."""
        return self.reset_tables_each_epoch

    @model_validator(mode="after")
    def _check_reset(self) -> Self:
        if self.reset_tables_each_epoch and self.warm_start is not None:
            message = "would throw away the tables of run.warm_start after the first epoch"
            raise invalid("reset_tables_each_epoch", message, "false, or no run.warm_start")
        return self

    @model_validator(mode="after")
    def _check_deltas(self) -> Self:
        if not self.deltas:
            return self
        if self.blend == "auto":
            object.__setattr__(self, "blend", "none")
        for field, is_set, part, valid in (
            ("blend", self.blend != "none", "part", '"none"'),
            ("recalibrate", self.recalibrate is not None, "map", "null"),
        ):
            if is_set:
                message = f"adds a {part} to the last model, and a delta has rows alone"
                raise invalid(field, message, f"{valid}, or run.deltas false")
        return self

    @model_validator(mode="after")
    def _check_quality(self) -> Self:
        if self.recalibrate is not None and self.validation_fraction == 0.0:
            message = "holds out no row, and run.recalibrate is fitted on validation rows"
            raise invalid("validation_fraction", message, '"auto", above 0 to 0.5; or run.recalibrate null')
        if self.recall_at is not None and self.group_by is None:
            message = "ranks rows within groups, and run.group_by is null"
            raise invalid("recall_at", message, "null, or a run.group_by")
        return self


class RunConfig(RunSpec):
    """Settings of the run, with its length decided."""

    epochs: NumEpochs = 1.0  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    """Number of passes over the training rows; a fraction trains on that share of them."""
    validation_fraction: ValidationFraction = 0.0  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    """Share of the training rows that are held out to choose the best model and the end of the run."""
    patience: Patience | None = None  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    """Number of evaluations in a row without a better model after which the run ends; null: never."""
    blend: Blend = "none"  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    """Simple model that the trained one is blended with at the end of the run."""
