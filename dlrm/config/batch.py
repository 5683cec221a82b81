"""The batch: samples of one step, and how many of them are in the dense part at a time."""

from typing import Literal

from pydantic import Field

from dlrm.config.base import Config

LARGEST_BATCH = 2**24


class BatchConfig(Config):
    """Sizes in samples."""

    global_size: int = Field(default=16_384, ge=1, le=LARGEST_BATCH)
    """B, samples of one step over all ranks; divisible by the number of ranks."""
    chunk_size: Literal["auto"] | int = "auto"
    """c, samples whose activations exist at a time on one rank; changes memory and speed, not the result."""
