"""Batch sizes: samples of one step, how they grow, and samples that are in the dense part at a time."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from dlrm.config.base import FALSE_IS_NULL, Auto, Config, fill_defaults
from dlrm.config.errors import invalid

MAX_BATCH = 2**24
BatchSize = Annotated[int, Field(ge=1, le=MAX_BATCH)]
MAX_STAGES = 64
"""Largest number of sizes before the last one."""

FIRST_DIVISOR = 8
"""Divisor of the last size that gives the first one."""
MAX_FIRST_SIZE = 16_384
"""Largest first size, in samples: 524,288 grown from 65,536 ended 0.0009 of AUC below 524,288 grown from this, both in
small steps, one seed (benchmarks/experiments.md)."""
GROWS_FROM, GROWS_UNTIL = 0.2, 0.6
"""Shares of the run's samples: end of the first size, and latest beginning of the last one."""
MIXED_UNTIL = 0.9
"""Share of the run's samples at which the small batch of schedule mixed ends, as in the paper."""
SIZES_PER_DOUBLING = 4
"""Number of sizes in which the batch doubles, a factor of 1.19 from one to the next. In each step a row of a table
moves by the sum over its samples, so that twice as large a batch raised the loss for some steps; small factors do not
(benchmarks/experiments.md)."""
USUAL_RANKS = 16
"""Largest number of ranks that the unit of sizes is chosen for."""
MAX_SHOWN = 4
"""Largest number of sizes before the last one that are shown one by one."""


class ScheduledBatch(Config):
    """Batch size of one part of the run, from the part before it on."""

    until_fraction: float = Field(gt=0.0, lt=1.0)
    """Share of the run's samples at which this size ends; the batch that reaches it is the last one."""
    global_size: BatchSize
    """Number of samples of one step over all ranks in this part; divisible by the number of ranks."""


BatchSchedule = Annotated[list[ScheduledBatch], Field(max_length=MAX_STAGES)]
# By the kind of the value, so that a stage at fault is told alone, and not that it is no "auto" either.
OpenSchedule = Annotated[
    Annotated[BatchSchedule, Tag("(stages)")] | Annotated[Literal["auto", "mixed"], Tag("(auto)")],
    Discriminator(lambda value: "(auto)" if isinstance(value, str) else "(stages)"),
]


class BatchGrowth(Config):
    """Growth of the batch by the noise scale of its gradient (McCandlish et al. 2018, arXiv 1812.06162)."""

    start_size: BatchSize
    """Number of samples of the first steps over all ranks; divisible by the number of ranks. The batch doubles from
    here, up to `global_size`, and never shrinks."""
    noise_factor: float = Field(default=1.0, gt=0.0, le=1000.0)
    """Multiple of the present batch that the noise scale must exceed for the batch to double."""
    check_every_fraction: float = Field(default=0.025, ge=0.001, le=0.5)
    """Share of the run's samples from one comparison with the noise scale to the next."""


class BatchSpec(Config):
    """Batch sizes, in samples, as a job document states them."""

    global_size: BatchSize | Auto = "auto"
    """Number of samples of one step over all ranks (B); divisible by the number of ranks. If the batch grows, this is
    its last and largest size, and memory is planned for it. auto: by the number of training rows, from 256 to
    16,384, so that there are enough steps (docs/from-a-file.md)."""
    chunk_size: Auto | BatchSize = "auto"
    """Number of samples whose activations one rank holds at a time (c); changes memory use and speed, not the
    result."""
    schedule: OpenSchedule = Field(default=[])
    """Smaller sizes that the run begins with, ascending; `global_size` follows. Empty: one size for the whole run.
    auto: an eighth of `global_size`, at most 16,384, for the first fifth of the samples; the batch then grows in
    small steps, and reaches `global_size` before 60 % of them. A growing batch can take the place of a falling rate
    (Smith et al. 2018, arXiv 1711.00489). mixed: the same first size for 90 % of the samples, then `global_size`, with
    `rewarmup` (mixed-batch training, You et al. 2020, arXiv 1904.00962, section 4.1)."""
    rewarmup: bool = False
    """Whether each size of the schedule has a warm-up and a decay of its own: shares of the run in the schedules of
    rates are then shares of the samples of that size. schedule mixed sets it if it is left out."""
    growth: Annotated[BatchGrowth | None, FALSE_IS_NULL] = None
    """Growth of the batch by the noise scale, which takes the place of a schedule; null or false: none."""

    def get_schedule(self) -> list[ScheduledBatch]:
        """Return the schedule; an empty one while it is left open."""
        return [] if isinstance(self.schedule, str) else self.schedule

    def list_sizes(self) -> list[tuple[str, int]]:
        """List the batch sizes that the document names, ascending, with their fields; none that is left open."""
        stages = enumerate(self.get_schedule())
        sizes = [(f"schedule.{number}.global_size", stage.global_size) for number, stage in stages]
        if self.growth is not None:
            sizes = [("growth.start_size", self.growth.start_size)]
        return sizes if self.global_size == "auto" else [*sizes, ("global_size", self.global_size)]

    def suggest_sizes(self, field: str, multiple: int) -> str:
        """Suggest the nearest valid values of one of `list_sizes`: multiples of `multiple`, and still ascending."""
        sizes = self.list_sizes()
        number = [name for name, _ in sizes].index(field)
        size = sizes[number][1]
        least = sizes[number - 1][1] + 1 if number else 1
        most = sizes[number + 1][1] - 1 if number + 1 < len(sizes) else MAX_BATCH
        below = size // multiple * multiple
        valid = [nearest for nearest in (below, below + multiple) if least <= nearest <= most]
        return " or ".join(map(str, valid)) or f"ascending multiples of {multiple} for all sizes"

    @model_validator(mode="before")
    @classmethod
    def _fill_rewarmup(cls, document: Any) -> Any:
        return fill_defaults(document, lambda fields: {"rewarmup": True} if fields.get("schedule") == "mixed" else {})

    @model_validator(mode="after")
    def _check_growth(self) -> Self:
        if self.schedule and self.growth is not None:
            raise invalid("growth", "schedule says already when the batch grows", "one of the two")
        if self.rewarmup and self.growth is not None:
            message = "nobody knows beforehand how long a size lasts that the noise scale ends"
            raise invalid("rewarmup", message, "false, or a schedule in the place of growth")
        sizes = self.list_sizes()
        if self.global_size == "auto" and sizes:
            raise invalid("global_size", "is auto, but a batch that grows needs its last size", f"above {sizes[-1][1]}")
        for number, (before, stage) in enumerate(pairwise(self.get_schedule()), start=1):
            if stage.until_fraction <= before.until_fraction:
                message = f"{stage.until_fraction:g} is not above the {before.until_fraction:g} before it"
                raise invalid(f"schedule.{number}.until_fraction", message, f"above {before.until_fraction:g}, below 1")
        for (_, before), (field, size) in pairwise(self.list_sizes()):
            if size <= before:
                message = f"{size} is not above the {before} that the batch has before"
                raise invalid(field, message, f"above {before}")
        return self


class BatchConfig(BatchSpec):
    """Batch sizes, in samples, with the size of a step decided."""

    global_size: BatchSize = 16_384  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    """Number of samples of one step over all ranks (B); divisible by the number of ranks. Of a batch that grows it is
    the last and largest size."""
    schedule: BatchSchedule = Field(default=[])  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    """Smaller sizes that the run begins with, ascending; `global_size` follows. Empty: one size for the whole run."""

    @property
    def first_size(self) -> int:
        """Number of samples of the first step."""
        return self.list_sizes()[0][1]

    @property
    def is_growing(self) -> bool:
        """Whether the run begins with smaller batches than its largest."""
        return self.first_size < self.global_size

    def find_part(self, done_fraction: float) -> tuple[float, float, int]:
        """Find the part of the run with one warm-up and one decay at a share of its samples: two shares, first size."""
        if not self.rewarmup:
            return 0.0, 1.0, self.first_size
        ends = [0.0, *(stage.until_fraction for stage in self.schedule), 1.0]
        start, end = next(pair for pair in pairwise(ends) if done_fraction < pair[1])
        return start, end, self.find_size(start)

    def find_size(self, done_fraction: float) -> int:
        """Find the batch at a share of the run's samples, as far as it is known before: the first one with `growth`."""
        if self.growth is not None:
            return self.growth.start_size
        return next(
            (stage.global_size for stage in self.schedule if done_fraction < stage.until_fraction), self.global_size
        )


def list_mixed_sizes(last: int) -> list[tuple[int, float]]:
    """List the small size before the last one, with the share of the run's samples at which it ends."""
    return [(first, MIXED_UNTIL) for first, _ in list_growing_sizes(last)[:1]]


def list_growing_sizes(last: int) -> list[tuple[int, float]]:
    """List the sizes before the last one, each with the share of the run's samples at which it ends, in their order.

    All are multiples of `find_unit`; of a small last one they repeat.
    """
    first = min(last // FIRST_DIVISOR, MAX_FIRST_SIZE)
    if first == 0:
        return []
    ratio, unit = last / first, find_unit(last)
    num_sizes = math.ceil(SIZES_PER_DOUBLING * math.log2(ratio))
    return [
        (
            round(first * ratio ** (number / num_sizes) / unit) * unit,
            round(GROWS_FROM + (GROWS_UNTIL - GROWS_FROM) * number / num_sizes, 4),
        )
        for number in range(num_sizes)
    ]


def find_unit(last: int) -> int:
    """Find the number that divides all sizes up to `last`, in samples.

    It depends on the last size alone, so that a stopped run goes on with another number of ranks: it divides `last`,
    and is itself divisible by as many of the usual numbers of ranks as may be. A sixteenth of the first size at most,
    or 8, so that sizes keep near their curve.
    """
    first = min(last // FIRST_DIVISOR, MAX_FIRST_SIZE)
    largest = max(first // 16, min(first // 4, 8), 1)
    units = [unit for unit in range(1, largest + 1) if last % unit == 0]
    return max(units, key=lambda unit: (sum(unit % num_ranks == 0 for num_ranks in range(1, USUAL_RANKS + 1)), unit))


def shorten_sizes(sizes: Sequence[str]) -> list[str]:
    """Return the sizes of a batch that grows as they are shown: of many, the first, how many follow, and the last."""
    if len(sizes) <= MAX_SHOWN:
        return list(sizes)
    return [sizes[0], f"{len(sizes) - 2} more sizes", sizes[-1]]
