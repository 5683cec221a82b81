"""Sharding: how tables are spread over ranks and what travels between them."""

from typing import Literal

from dlrm.config.base import Config


class ShardingConfig(Config):
    """The plan of the embedding tables."""

    plan: Literal["auto", "table_wise", "row_wise"] = "auto"
    """auto chooses for each table; the others fix the type of every table."""
    exchange_dtype: Literal["fp32", "fp16"] = "fp32"
    """Number format of pooled embeddings and their gradients between ranks."""
