"""The ways between ranks and tables that one machine can test."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal
from unittest import mock

from sharding.embedding import native_ops as native

TransportKind = Literal["memory", "network", "network by FBGEMM"]
TRANSPORT_KINDS: list[TransportKind] = ["memory", "network", "network by FBGEMM"]


def kernels_of(way: TransportKind) -> AbstractContextManager[Any]:
    """While tables are made and used."""
    return mock.patch.object(native, "is_built", return_value=False) if way == "network by FBGEMM" else nullcontext()


def transport_of(way: TransportKind) -> Literal["memory", "network"]:
    return "memory" if way == "memory" else "network"
