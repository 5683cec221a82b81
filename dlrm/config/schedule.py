"""Learning-rate schedules: functions of the step and the batch, with lengths as fractions of the run."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from dlrm.config import curves
from dlrm.config.autowu import AutoWarmupConfig
from dlrm.config.base import FALSE_IS_NULL, Config, fill_defaults
from dlrm.config.batch import BatchSize
from dlrm.config.curves import MAX_WARMUP, Decay, NoiseRule, Scaling
from dlrm.config.errors import invalid

DEFAULT_POWER = 2.0
DEFAULT_COOLDOWN_FRACTION = 0.2


class ScheduleConfig(Config):
    """Schedule of a learning rate: scaling with the batch, linear warm-up, then decay to zero at the end of the run."""

    warmup_fraction: float = Field(default=0.1, ge=0.0, le=MAX_WARMUP)
    """Share of the run over which the rate rises linearly to its peak; scaling legw makes it longer with the batch."""
    decay: Decay = "polynomial"
    """Shape of the rate after warm-up. polynomial and cosine fall from the start; constant never falls; wsd (warm-up,
    stable, cool-down) stays at the peak and falls linearly at the end."""
    power: float = Field(default=DEFAULT_POWER, gt=0.0, le=10.0)
    """Exponent of the polynomial decay; the other decays have none."""
    cooldown_fraction: float | None = Field(default=None, gt=0.0, le=1.0 - MAX_WARMUP)
    """Share of the run, at its end, over which wsd falls; default 0.2. null for the other decays."""
    base_batch: BatchSize = 2048
    """Number of samples of the batch for which `learning_rate` was chosen."""
    scaling: Scaling = "none"
    """Factor on the peak rate by s = B / base_batch. none: 1; sqrt: sqrt(s); linear: s; legw (You et al. 2019, arXiv
    1901.08433): sqrt(s), with a warm-up s times as long, but at most half of the run; noise: by `noise_scale`, as far
    below it s for sgd, momentum and lars and sqrt(s) for other optimizers, and less near it (McCandlish et al. 2018,
    arXiv 1812.06162; Li et al. 2024, arXiv 2405.14578); adascale: for sgd, momentum and lars the gain of each step,
    from 1 to s by the noise of the gradient in this run, the root of the gain for other optimizers. A step then counts
    by its gain in warm-up and decay, which end with the run (AdaScale, Johnson et al. 2020, arXiv 2007.05105; dense
    parameters alone)."""
    noise_scale: float | None = Field(default=None, ge=1e-6, le=1e15)
    """Number of samples of the noise scale that scaling noise goes by, such as an earlier run reports at its end. null
    for the other scalings."""
    autowu: Annotated[AutoWarmupConfig | None, FALSE_IS_NULL] = None
    """Warm-up that ends by the training loss, of the dense parameters: it finds the learning rate itself, so that
    `learning_rate`, `scaling` and `warmup_fraction` have no effect. null or false: none."""

    @model_validator(mode="before")
    @classmethod
    def _fill_cooldown(cls, document: Any) -> Any:
        cooldown = {"cooldown_fraction": DEFAULT_COOLDOWN_FRACTION}
        return fill_defaults(document, lambda fields: cooldown if fields.get("decay") == "wsd" else {})

    @model_validator(mode="after")
    def _check_unused_fields(self) -> "ScheduleConfig":
        if self.decay != "polynomial" and self.power != DEFAULT_POWER:
            raise invalid("power", f'decay "{self.decay}" has no power', 'leave it out, or decay "polynomial"')
        if self.decay != "wsd" and self.cooldown_fraction is not None:
            raise invalid("cooldown_fraction", f'decay "{self.decay}" has no cooldown', 'leave it out, or decay "wsd"')
        if self.scaling == "noise" and self.noise_scale is None:
            valid = "samples, such as the noise scale that an earlier run reports at its end; or another scaling"
            raise invalid("noise_scale", 'required by scaling "noise"', valid)
        if self.scaling != "noise" and self.noise_scale is not None:
            message = f'scaling "{self.scaling}" goes by no noise scale'
            raise invalid("noise_scale", message, 'leave it out, or scaling "noise"')
        if self.follows_gain and self.autowu is not None:
            raise invalid(
                "scaling", "adascale scales a rate, and autowu finds its own", "another scaling, or autowu null"
            )
        return self

    @property
    def follows_gain(self) -> bool:
        """Whether the rate follows the gain of each step, so that `scale` is only its bound."""
        return self.scaling == "adascale"

    def scale(self, global_size: int, noise_rule: NoiseRule) -> float:
        """Return the factor on the learning rate at a batch of `global_size` samples.

        noise_rule: what scaling noise is far below the noise scale; it depends on the optimizer. With adascale the
        factor is the bound that follows from a gain of the whole ratio of the batches.
        """
        if self.scaling != "noise":
            scaling = noise_rule if self.scaling == "adascale" else self.scaling
            return curves.scale(global_size / self.base_batch, scaling)
        assert self.noise_scale is not None, "checked where the scaling is noise"
        return curves.scale_by_noise(global_size, self.base_batch, self.noise_scale, noise_rule)

    def requested_warmup(self, global_size: int) -> float:
        """Return the share of the run that warm-up asks for at a batch of `global_size` samples; it may exceed 1."""
        if self.scaling != "legw":
            return self.warmup_fraction
        return curves.legw_warmup(self.warmup_fraction, global_size / self.base_batch)

    def warmup(self, global_size: int) -> float:
        """Return the share of the run that warm-up takes at a batch of `global_size` samples, at most MAX_WARMUP."""
        return min(self.requested_warmup(global_size), MAX_WARMUP)

    def count_warmup_steps(self, num_steps: float, global_size: int) -> int:
        """Count the warm-up steps of a run of `num_steps` batches of `global_size` samples, by the share `warmup`."""
        # The length is rounded first, so that a few rows at the end of a run do not change the number of warm-up steps.
        return round(self.warmup(global_size) * round(num_steps))

    def factor(self, step: float, num_steps: float, num_warmup_steps: float, first_step: float = 1.0) -> float:
        """Compute the factor on the peak rate at `step`, counted from 0, in a run of `num_steps` full batches.

        All of them count batches of the present size, so that the factor is a function of the samples; `first_step` is
        the length of a step of the run's first size. The last step of the warm-up has factor 1; without warm-up the
        first step of the run has factor 1. Decay covers the remaining steps, and is never 0 before the end of the run.
        """
        num_done = step + 1
        if num_done < num_warmup_steps:
            return curves.linear_warmup(num_done, num_warmup_steps)
        num_decay_steps = num_steps - num_warmup_steps
        progress = (num_done - max(num_warmup_steps, 1)) / max(num_decay_steps, 1.0)
        # Steps of the first size: with fewer and larger ones the rate would rise again near the end.
        max_progress = 1.0 - 1.0 / (num_decay_steps / first_step + 1.0)
        return self._compute_decay(min(max(progress, 0.0), max_progress), num_decay_steps / num_steps)

    def _compute_decay(self, progress: float, share: float) -> float:
        """Compute the factor after warm-up. progress: share done of the steps after warm-up. share: their share of the
        run."""
        match self.decay:
            case "polynomial":
                return curves.polynomial(progress, self.power)
            case "cosine":
                return curves.cosine(progress)
            case "wsd":
                assert self.cooldown_fraction is not None, "filled where the decay is wsd"
                return curves.cooldown(progress, min(self.cooldown_fraction / share, 1.0))
            case "constant":
                return 1.0
