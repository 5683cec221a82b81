"""The transports of sharded tables, all of which one machine can test."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args
from unittest import mock

from sharding.embedding import native_ops
from sharding.embedding.make_transport import TransportName
from tests.sharding.embedding.plans import NODES

TRANSPORTS: tuple[TransportName, ...] = get_args(TransportName)


@contextmanager
def use_transport(transport: TransportName, world_size: int) -> Iterator[None]:
    """Set what `transport` finds on a machine, while tables are made and used.

    TorchRec reads from the environment, as torch elastic sets it, how many ranks a node has: as in the plans of tests.
    Where it has the tables there may be no native operators: replicated tables then use torch.
    """
    if transport != "torchrec":
        yield
        return
    nodes = {"LOCAL_WORLD_SIZE": str(len(NODES[world_size][0]))}
    with mock.patch.object(native_ops, "is_built", return_value=False), mock.patch.dict(os.environ, nodes):
        yield
