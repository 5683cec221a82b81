"""A copy of a state in the memory of the host, which training does not change while it is written."""

import copy
from dataclasses import replace
from typing import Any

import torch
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed._shard.sharded_tensor.shard import Shard


def host_copy(state: Any) -> Any:
    """`state`, nested dictionaries and lists of tensors and plain values, with every tensor copied once.

    torch's own stager copies a ShardedTensor three times over.
    """
    if isinstance(state, dict):
        return {key: host_copy(value) for key, value in state.items()}
    if isinstance(state, list):
        return [host_copy(value) for value in state]
    if isinstance(state, ShardedTensor):
        return _copied_shards(state)
    return _copied(state) if isinstance(state, torch.Tensor) else copy.copy(state)


def num_bytes_in(state: Any) -> int:
    """Bytes of the tensors of `state` that this rank holds."""
    if isinstance(state, dict):
        return sum(num_bytes_in(value) for value in state.values())
    if isinstance(state, list):
        return sum(num_bytes_in(value) for value in state)
    if isinstance(state, ShardedTensor):
        return sum(shard.tensor.nbytes for shard in state.local_shards())
    return state.nbytes if isinstance(state, torch.Tensor) else 0


def _copied_shards(table: ShardedTensor) -> ShardedTensor:
    shards = [Shard(_copied(shard.tensor), _on_host(shard.metadata)) for shard in table.local_shards()]
    whole = replace(table.metadata(), shards_metadata=[_on_host(shard) for shard in table.metadata().shards_metadata])
    return ShardedTensor._init_from_local_shards_and_global_metadata(shards, whole, table._process_group)


def _on_host(shard: ShardMetadata) -> ShardMetadata:
    assert shard.placement is not None, "every shard is on some rank"
    return ShardMetadata(shard.shard_offsets, shard.shard_sizes, f"rank:{shard.placement.rank()}/cpu")


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)
