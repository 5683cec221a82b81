"""The transports, and the kernels behind them, that one machine can test."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal
from unittest import mock

from sharding.embedding import native_ops

TransportKind = Literal["memory", "network", "network by FBGEMM"]
TRANSPORT_KINDS: list[TransportKind] = ["memory", "network", "network by FBGEMM"]


def use_kernels(kind: TransportKind) -> AbstractContextManager[Any]:
    """Use the kernels of `kind` while tables are made and used."""
    is_fbgemm = kind == "network by FBGEMM"
    return mock.patch.object(native_ops, "is_built", return_value=False) if is_fbgemm else nullcontext()


def get_transport(kind: TransportKind) -> Literal["memory", "network"]:
    return "memory" if kind == "memory" else "network"
