"""Advice on the batch from the noise scale: the details of the event `batch_advice`."""

from dlrm.record.files import Record

BATCH_ADVICE = "batch_advice"
"""Name of the event."""


class BatchCost(Record):
    """Cost of reaching the same result with this batch: steps measure time, samples measure data."""

    batch: int
    steps: float
    """Steps, as a multiple of the steps of this run."""
    samples: float
    """Samples, as a multiple of the samples of this run."""
    steps_of_fewest: float
    """Steps, as a multiple of the steps that the largest batches need: S / Smin."""
    samples_of_fewest: float
    """Samples, as a multiple of the samples that the smallest batches need: E / Emin."""


class BatchAdvice(Record):
    """Advice at the end of a run; without a noise scale there is none, and the event's message says why."""

    batch: int
    """Number of samples of this run's batch; of one that grew, of the last one."""
    first_batch: int | None = None
    """Number of samples of this run's first batch, if its batch grew; None if all have one size, and in advice of
    earlier versions."""
    noise_scale: float | None
    """Noise scale in samples, of the last steps of the run and of the dense parameters alone; None: unknown."""
    noise_scale_low: float | None = None
    """Lower bound in samples: the true noise scale is between this and `noise_scale_high` in about 95 of 100 runs. None
    in advice of earlier versions."""
    noise_scale_high: float | None = None
    largest_useful_batch: int | None
    """Largest useful batch, in samples; None: unknown."""
    table: list[BatchCost]
    """Costs by batch, this run's own batch included, or its first and its last; empty if there is no noise scale."""
