"""Batch sizes: samples of one step, and samples that are in the dense part at a time."""

from typing import Literal

from pydantic import Field

from dlrm.config.base import Config

MAX_BATCH = 2**24


class BatchConfig(Config):
    """Batch sizes, in samples."""

    global_size: int = Field(default=16_384, ge=1, le=MAX_BATCH)
    """Number of samples of one step over all ranks (B); divisible by the number of ranks."""
    chunk_size: Literal["auto"] | int = "auto"
    """Number of samples whose activations one rank holds at a time (c); changes memory use and speed, not the
    result."""
