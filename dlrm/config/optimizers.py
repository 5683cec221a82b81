"""Optimizers, one for the dense parameters and one fused into the tables' update, and the average of the weights."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Field, model_validator

from dlrm.config.base import FALSE_IS_NULL, Auto, Config, NotNegative, Positive, fill_defaults
from dlrm.config.curves import NoiseRule
from dlrm.config.errors import invalid
from dlrm.config.schedule import ScheduleConfig

_MOMENTUM = {"momentum": 0.9, "momentum_dtype": "fp32"}
_ADAM = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "momentum_dtype": "fp32"}

SETTINGS: dict[str, dict[str, Any]] = {
    "sgd": {"learning_rate": 0.1, "weight_decay": 0.0},
    "momentum": {"learning_rate": 0.03, "weight_decay": 0.0, **_MOMENTUM},
    "adam": {"learning_rate": 0.0005, "weight_decay": 0.0, **_ADAM},
    "adamw": {"learning_rate": 0.0005, "weight_decay": 0.01, **_ADAM},
    "nadamw": {"learning_rate": 0.00025, "weight_decay": 0.01, **_ADAM},
    "adagrad": {"learning_rate": 0.0003, "weight_decay": 0.0, "eps": 1e-10},
    "lars": {"learning_rate": 0.3, "weight_decay": 0.0001, "trust_coefficient": 0.001, **_MOMENTUM},
    "lamb": {"learning_rate": 0.005, "weight_decay": 0.01, **_ADAM, "eps": 1e-6},
    "soap": {
        "learning_rate": 0.003,
        "weight_decay": 0.01,
        **_ADAM,
        "beta1": 0.95,
        "beta2": 0.95,
        "shampoo_beta": 0.95,
        "precondition_every": 10,
        "max_precondition_dim": 2048,
    },
    "adafactor": {"learning_rate": 0.0005, "weight_decay": 0.01, "beta1": 0.9, "momentum_dtype": "fp32"},
    "schedule_free": {
        "learning_rate": 0.002,
        "weight_decay": 0.01,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
    },
}
"""Settings of each optimizer with their defaults; learning rates are for a batch of 2,048 samples
(benchmarks/experiments.md)."""

STATE_PER_PARAMETER = {
    **{"sgd": 0, "momentum": 1, "adagrad": 1, "lars": 1, "adam": 2, "adamw": 2, "nadamw": 2, "lamb": 2, "soap": 2},
    "adafactor": 1,
    "schedule_free": 3,
}
"""Numbers that each optimizer keeps for a parameter, beside any for a whole matrix, row or column."""
_AVERAGING = "schedule_free"
"""Optimizer that averages the weights itself."""
_FACTORED = "adafactor"
"""Optimizer that keeps mean squares by rows and columns."""
_DENSE_SCHEDULE: dict[str, Any] = {"scaling": "sqrt"}
_TABLE_SCHEDULE: dict[str, Any] = {"warmup_fraction": 0.0, "decay": "constant"}

DEFAULT_TABLE_RATE = 0.02
MAX_INITIAL_ACCUMULATOR = 1e30
"""Largest value at which sums of squares begin: they are kept in fp32."""

_OPTIMIZER_FIELDS = frozenset(field for settings in SETTINGS.values() for field in settings)
TRUST_SCALED = ("lars", "lamb")
SGD_LIKE = ("sgd", "momentum", "lars")
"""Optimizers, of dense parameters or tables, that step along the gradient or its mean; the others divide it by the size
that earlier gradients had, so that a step is about as long whatever the gradient."""


class ParameterGroupConfig(Config):
    """The dense parameters whose names match a pattern, and how they are trained."""

    parameters: str = Field(min_length=1)
    """Shell pattern of parameter names, such as "top.*" or "*.bias"."""
    learning_rate_factor: NotNegative = 1.0
    """Factor on the optimizer's learning rate; 0 leaves the parameters at their initial values."""
    weight_decay: NotNegative | None = None
    """Weight decay of the group; null: the optimizer's own for matrices, none for biases and other vectors."""
    trust_ratio: bool | None = None
    """Whether the rate follows the norm of the parameter, in lars and lamb; null: for matrices only."""


class DenseOptimizerSpec(Config):
    """The optimizer of the dense parameters, as a job document states it.

    A field of the named optimizer gets its default if left out or null; fields of other optimizers are null.
    """

    name: Literal[
        "sgd",
        "momentum",
        "adam",
        "adamw",
        "nadamw",
        "adagrad",
        "lars",
        "lamb",
        "soap",
        "adafactor",
        "schedule_free",
    ] = "adam"
    """Name of the optimizer. sgd: plain SGD. momentum: SGD with momentum. adam: Kingma & Ba 2015. adamw: Adam with
    decoupled weight decay (Loshchilov and Hutter 2019). nadamw: adamw with Nesterov momentum (Dozat 2016, in the form
    of Choi et al. 2019, arXiv 1910.05446). adagrad: Duchi et al. 2011. lars: momentum whose rate follows each tensor's
    ||w|| / ||g|| (You et al. 2017, arXiv 1708.03888). lamb: Adam whose rate follows ||w|| / ||update|| (You et al.
    2020, arXiv 1904.00962). soap: Adam in the eigenbasis of Shampoo's preconditioner (Vyas et al. 2024, arXiv
    2409.11321). adafactor: mean squares of the rows and columns of matrices alone, updates clipped to a root mean
    square of 1, and momentum (Shazeer and Stern 2018, arXiv 1804.04235; Zhai et al. 2022, arXiv 2106.04560).
    schedule_free: AdamW at a constant rate, with an average of the weights that is evaluated and exported (Defazio et
    al. 2024, arXiv 2405.15682)."""
    learning_rate: Positive | Auto = "auto"
    """Learning rate at a batch of `schedule.base_batch` samples. auto: the optimizer's own, adjusted to the number of
    training rows."""
    momentum: float | None = Field(default=None, ge=0.0, lt=1.0)
    """Share of the velocity that is kept from step to step, in momentum and lars; default 0.9."""
    nesterov: bool = False
    """Whether a step is the gradient plus `momentum` times the new velocity, in momentum (Nesterov's momentum in the
    form of Sutskever et al. 2013)."""
    beta1: float | None = Field(default=None, ge=0.0, lt=1.0)
    """Share of the mean gradient that is kept from step to step, in adam, adamw, nadamw, lamb and soap; of the mean
    update, in adafactor; in schedule_free, share of the average in the weights that are trained. Default 0.9, in soap
    0.95."""
    beta2: float | None = Field(default=None, ge=0.0, lt=1.0)
    """Share of the mean squared gradient that is kept from step to step, in adam, adamw, nadamw, lamb, soap and
    schedule_free; default 0.999, in soap 0.95."""
    memory: Literal["steps", "samples"] = "steps"
    """Unit in which means of gradients forget, where the batch grows. steps: each step keeps the same share. samples: a
    mean keeps its half-life in samples: a step of k times the samples of the run's first batch keeps beta^k
    (Marek et al. 2025, arXiv 2507.07101). It holds for beta1 (not of schedule_free, where it is no mean), beta2,
    shampoo_beta and variance_reduction.beta3, in adam, adamw, nadamw, lamb, soap and schedule_free."""
    eps: Positive | None = None
    """Value added to the root of the squares in the denominator; default 1e-8 in adam, adamw, nadamw, soap and
    schedule_free, 1e-6 in lamb, 1e-10 in adagrad."""
    weight_decay: NotNegative | None = None
    """Share of a weight that is added to its gradient (sgd, momentum, adam, adagrad and lars) or to its update (adamw,
    nadamw, lamb, soap, adafactor and schedule_free), for matrices; biases have none unless `groups` sets it. Default
    0.01 in adamw, nadamw, lamb, soap, adafactor and schedule_free, 0.0001 in lars, 0 in the others."""
    trust_coefficient: Positive | None = None
    """Factor on ||w|| / (||g|| + weight_decay ||w||), in lars; default 0.001."""
    shampoo_beta: float | None = Field(default=None, ge=0.0, lt=1.0)
    """Share of the mean products of a gradient with itself, G G^T and G^T G, that is kept from step to step, in soap;
    default 0.95."""
    precondition_every: int | None = Field(default=None, ge=1, le=1_000_000)
    """Number of steps from one update of the eigenvectors to the next, in soap; default 10."""
    max_precondition_dim: int | None = Field(default=None, ge=1, le=1_000_000)
    """Largest side of a matrix, in rows or columns, that soap rotates; default 2048. Memory grows with the second power
    of a side, time with the third."""
    momentum_dtype: Literal["fp32", "bf16"] | None = None
    """Number format in which the velocity, Adam's mean gradient or Adafactor's mean update is kept between steps, in
    momentum, adam, adamw, nadamw, lars, lamb, soap and adafactor; default fp32. Sums are always in the parameters' own
    format."""
    max_gradient_norm: Positive | None = None
    """Largest L2 norm of the mean gradient of a sample's loss by all dense parameters together. A longer one is
    shortened to it, after variance reduction and preconditioner (Pascanu et al. 2013, arXiv 1211.5063). null: no
    limit."""
    groups: list[ParameterGroupConfig] = Field(default=[], max_length=100)
    """Groups of dense parameters by the pattern of their names; the first group that matches a parameter claims it.
    Every parameter must be claimed, and every group must claim at least one. Empty: all parameters are trained
    alike."""
    schedule: ScheduleConfig = ScheduleConfig(**_DENSE_SCHEDULE)
    """Schedule of the learning rate over the run, and its scaling with the batch; scaling defaults to sqrt, and the
    decay of schedule_free to constant, the only one that it has."""

    @property
    def is_adaptive(self) -> bool:
        """Whether the update is divided by the root of the mean square, so that a constant factor on the gradient
        cancels out."""
        return self.name in ("adam", "adamw", "nadamw", "lamb", "soap", _FACTORED, _AVERAGING)

    @property
    def is_factored(self) -> bool:
        """Whether the mean square of a matrix is kept as one number for each of its rows and columns."""
        return self.name == _FACTORED

    @property
    def is_preconditioning(self) -> bool:
        """Whether the optimizer preconditions the gradient of whole matrices."""
        return "max_precondition_dim" in SETTINGS[self.name]

    @property
    def is_averaging(self) -> bool:
        """Whether the optimizer keeps an average of the weights, which is evaluated and exported."""
        return is_averaging(self.name)

    @property
    def is_trust_scaled(self) -> bool:
        """Whether the rate of each tensor follows its norm."""
        return self.name in TRUST_SCALED

    @model_validator(mode="before")
    @classmethod
    def _fill_settings(cls, document: Any) -> Any:
        document = fill_defaults(document, _get_settings)
        return _fill_last_rate(_fill_schedule_fields(document, _DENSE_SCHEDULE))

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.is_averaging and self.schedule.decay != "constant":
            message = f"{self.name} averages the weights at a constant rate, in the place of a decay"
            raise invalid("schedule.decay", message, '"constant", or another optimizer')
        if self.is_averaging and self.schedule.autowu is not None:
            message = f"{self.name} weights its average by the peak rate, which autowu does not know beforehand"
            raise invalid("schedule.autowu", message, "null, or another optimizer")
        if self.is_averaging and self.schedule.follows_gain:
            message = f"{self.name} weights its average by the peak rate, which adascale does not know beforehand"
            raise invalid("schedule.scaling", message, "another scaling, or another optimizer")
        for field in sorted(_OPTIMIZER_FIELDS - SETTINGS[self.name].keys()):
            if getattr(self, field) is not None:
                optimizers = " or ".join(name for name, settings in SETTINGS.items() if field in settings)
                raise invalid(field, f"{self.name} has no {field}", f"leave it out, or use {optimizers}")
        if self.memory == "samples" and "beta2" not in SETTINGS[self.name]:
            optimizers = " or ".join(name for name, settings in SETTINGS.items() if "beta2" in settings)
            raise invalid("memory", f"{self.name} has no mean that forgets by beta2", f'"steps", or use {optimizers}')
        if self.nesterov and (self.name != "momentum" or not self.momentum):
            message = f"{self.name} has no nesterov" if self.name != "momentum" else "looks ahead, and momentum is 0"
            raise invalid("nesterov", message, "false, or the optimizer momentum")
        for number, group in enumerate(self.groups):
            if group.trust_ratio is not None and not self.is_trust_scaled:
                message = f"{self.name} has no trust ratio"
                raise invalid(
                    f"groups.{number}.trust_ratio", message, f"leave it out, or use {' or '.join(TRUST_SCALED)}"
                )
        return self


class CowClipConfig(Config):
    """Clipping of the gradient of each row of a table in a batch to count max(r ||w||, zeta), with the row's weights w
    and the number of times that the batch names it (CowClip, Zheng et al. 2022, arXiv 2204.06240, algorithm 1). So the
    limit of a row follows its own occurrences, whatever the batch."""

    r: NotNegative = 1.0
    """Largest norm of the gradient of one occurrence as a multiple of the norm of the row's weights."""
    zeta: Positive = 1e-5
    """Largest norm of the gradient of one occurrence where `r` times the norm of the weights is smaller."""


class TableOptimizerSpec(Config):
    """The optimizer fused into the update of the embedding tables, as a job document states it."""

    name: Literal["rowwise_adagrad", "adagrad", "sgd"] = "rowwise_adagrad"
    """Name of the optimizer. rowwise_adagrad keeps one number for each row, adagrad one for each weight, sgd none."""
    learning_rate: Positive | Auto = "auto"
    """Learning rate at a batch of `schedule.base_batch` samples; the best rate of Adagrad hardly changes with the
    batch. auto: by the number of training rows."""
    schedule: ScheduleConfig = ScheduleConfig(**_TABLE_SCHEDULE)
    """Schedule of the learning rate over the run, and its scaling with the batch; warm-up defaults to none, decay to
    constant."""
    cowclip: Annotated[CowClipConfig | None, FALSE_IS_NULL] = None
    """Clipping of the gradients of rows, in rowwise_adagrad; null or false: gradients are used as they are."""
    count_exponent: float = Field(default=0.0, ge=-1.0, le=1.0)
    """Exponent of the number of times that the batch names a row: the row's learning rate is multiplied by the number
    to this power. 0.5 with Adagrad scales the rate of each row by the root of its own part of the batch; -0.5 with sgd
    is frequency-aware SGD (Li et al. 2021, arXiv 2110.04844); 0: one rate for all rows."""
    initial_accumulator: float = Field(default=0.0, ge=0.0, le=MAX_INITIAL_ACCUMULATOR)
    """Value at which the sums of squares of rowwise_adagrad and adagrad begin, in units of the squared gradient of the
    loss of one sample, so that it means the same at any batch. 0: the first step of a row has the full length, whatever
    its gradient."""

    @property
    def counting_field(self) -> tuple[str, str] | None:
        """Field that depends on how often a row occurs in a batch, with the value to turn it off; None if absent."""
        if self.cowclip is not None:
            return "cowclip", "null"
        return ("count_exponent", "0") if self.count_exponent else None

    @property
    def count_rule(self) -> dict[str, float]:
        """Settings of `sharding.embedding.count_rule.CountRule` that differ from its defaults, by name."""
        clip = {} if self.cowclip is None else {"clip_ratio": self.cowclip.r, "clip_floor": self.cowclip.zeta}
        return {**clip, "count_exponent": self.count_exponent}

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.schedule.autowu is not None:
            message = "the tables learn at a rate of their own"
            raise invalid("schedule.autowu", message, "null; dense_optimizer.schedule.autowu finds the dense rate")
        if self.schedule.follows_gain:
            message = "adascale goes by the noise of the dense gradient, and the noise of tables is not measured"
            raise invalid("schedule.scaling", message, '"none", "sqrt", "linear", "legw" or "noise"')
        if self.cowclip is not None and self.name != "rowwise_adagrad":
            message = f"clips whole rows, but {self.name} allows plans that split rows"
            raise invalid("cowclip", message, "null, or table_optimizer.name rowwise_adagrad")
        if self.initial_accumulator and self.name == "sgd":
            message = "is where sums of squares begin, and sgd keeps none"
            raise invalid("initial_accumulator", message, "0, or table_optimizer.name rowwise_adagrad or adagrad")
        return self

    @model_validator(mode="before")
    @classmethod
    def _fill_schedule(cls, document: Any) -> Any:
        return _fill_schedule_fields(document, _TABLE_SCHEDULE)


class DenseOptimizerConfig(DenseOptimizerSpec):
    """The optimizer of the dense parameters, with its rate decided."""

    learning_rate: Positive = SETTINGS["adam"]["learning_rate"]  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    """Learning rate at a batch of `schedule.base_batch` samples; each optimizer has its own default."""

    @model_validator(mode="before")
    @classmethod
    def _fill_rate(cls, document: Any) -> Any:
        return fill_defaults(document, lambda fields: {"learning_rate": get_default_rate(fields.get("name", "adam"))})


class TableOptimizerConfig(TableOptimizerSpec):
    """The optimizer fused into the update of the embedding tables, with its rate decided."""

    learning_rate: Positive = DEFAULT_TABLE_RATE  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    """Learning rate at a batch of `schedule.base_batch` samples."""


class AveragingConfig(Config):
    """An exponential moving average of all weights, dense parameters and tables, beside those that are trained. It is
    what is evaluated, what the best model is chosen by, and what the run leaves; training itself is the same without
    it. Half-lives are shares of the run, so that a different batch leaves them unchanged (Polyak & Juditsky 1992;
    Morales-Brotons et al. 2024, arXiv 2411.18704)."""

    half_life_fraction: float = Field(default=0.05, gt=0.0, le=1.0)
    """Share of the run's samples after which weights count half in the average."""


def get_default_rate(name: str) -> float | None:
    """Return the default rate of a dense optimizer at a batch of 2,048 samples; None if absent."""
    return SETTINGS.get(name, {}).get("learning_rate")


def is_averaging(name: str) -> bool:
    """Whether a dense optimizer keeps an average of the weights, which is evaluated and exported."""
    return name == _AVERAGING


def get_noise_rule(name: str) -> NoiseRule:
    """Return how the best rate of an optimizer follows the batch far below the noise scale."""
    return "linear" if name in SGD_LIKE else "sqrt"


def compute_peak_rate(optimizer: DenseOptimizerConfig | TableOptimizerConfig, global_size: int) -> float:
    """Compute the largest rate of the schedule at a batch of `global_size` samples: a bound with autowu or adascale."""
    if optimizer.schedule.autowu is not None:
        return optimizer.schedule.autowu.last_rate
    return optimizer.learning_rate * optimizer.schedule.scale(global_size, get_noise_rule(optimizer.name))


def _get_settings(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the defaults of the optimizer that `fields` names; its rate is left to be decided."""
    return {**SETTINGS.get(str(fields.get("name", "adam")), {}), "learning_rate": "auto"}


def _fill_schedule_fields(document: Any, defaults: Mapping[str, Any]) -> Any:
    """Return an optimizer's document with the missing fields of its schedule filled in.

    So naming one field of the schedule does not change the defaults of the others. schedule_free has no decay.
    """
    if not isinstance(document, dict):
        return document
    fields = cast("dict[str, Any]", document)
    if is_averaging(str(fields.get("name"))):
        fields, defaults = {"schedule": dict[str, Any](), **fields}, {**defaults, "decay": "constant"}
    if "schedule" not in fields:
        return fields
    return {**fields, "schedule": fill_defaults(fields["schedule"], lambda _: defaults)}


def _fill_last_rate(document: Any) -> Any:
    """Return a dense optimizer's document with the largest rate of AutoWU filled in, unless its own default holds.

    An update of about the length of the rate destroys a model at 1, before the loss shows it.
    """
    match document:
        case {"schedule": {"autowu": {**autowu}} as schedule, **rest} if rest.get("name", "adam") not in SGD_LIKE:
            return {**rest, "schedule": {**schedule, "autowu": {"last_rate": 0.1, **autowu}}}
        case _:
            return document
