"""Batch sizes: samples of one step, and samples that are in the dense part at a time."""

from typing import Annotated

from pydantic import Field

from dlrm.config.base import Auto, Config

MAX_BATCH = 2**24
BatchSize = Annotated[int, Field(ge=1, le=MAX_BATCH)]


class BatchSpec(Config):
    """Batch sizes, in samples, as a job document states them."""

    global_size: BatchSize | Auto = "auto"
    """Number of samples of one step over all ranks (B); divisible by the number of ranks. auto: by the number of
    training rows, so that there are enough steps."""
    chunk_size: Auto | int = "auto"
    """Number of samples whose activations one rank holds at a time (c); changes memory use and speed, not the
    result."""


class BatchConfig(BatchSpec):
    """Batch sizes, in samples, with that of a step decided."""

    global_size: BatchSize = 16_384  # pyright: ignore[reportIncompatibleVariableOverride], specs are frozen
    """Number of samples of one step over all ranks (B); divisible by the number of ranks."""
