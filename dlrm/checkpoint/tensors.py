"""The tensors of a state: copied to the host, viewed without a copy, or counted."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed._shard.sharded_tensor.shard import Shard


def copy_to_host(state: Any) -> Any:
    """Return `state`, nested dictionaries and lists of tensors and plain values, with every tensor copied to the host
    once.

    Training does not change the copy while it is written. torch's own stager copies a ShardedTensor three times.
    """
    return _map_tensors(state, lambda tensor: tensor.detach().to("cpu", copy=True))


def view_on_host(state: Any) -> Any:
    """Return `state` without copying the tensors that are on the host; each of these owns all of its storage.

    Tables are views of one large buffer, and torch's writer copies a tensor that does not own all of its storage.
    """
    return _map_tensors(state, _copy_if_shared)


def count_bytes(state: Any) -> int:
    """Return the number of bytes of the tensors of `state` that this rank holds."""
    return sum(tensor.nbytes for tensor in _list_tensors(state))


def _list_tensors(state: Any) -> list[torch.Tensor]:
    if isinstance(state, dict | list):
        values = state.values() if isinstance(state, dict) else state
        return [tensor for value in values for tensor in _list_tensors(value)]
    if isinstance(state, ShardedTensor):
        return [shard.tensor for shard in state.local_shards()]
    return [state] if isinstance(state, torch.Tensor) else []


def _map_tensors(state: Any, convert: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(state, dict):
        return {key: _map_tensors(value, convert) for key, value in state.items()}
    if isinstance(state, list):
        return [_map_tensors(value, convert) for value in state]
    if isinstance(state, ShardedTensor):
        return _map_shards(state, convert)
    return convert(state) if isinstance(state, torch.Tensor) else copy.copy(state)


def _map_shards(table: ShardedTensor, convert: Callable[[torch.Tensor], torch.Tensor]) -> ShardedTensor:
    tensors = [convert(shard.tensor) for shard in table.local_shards()]
    device = tensors[0].device.type if tensors else "cpu"
    local_metadata = [_place_on(shard.metadata, device) for shard in table.local_shards()]
    shards = [Shard(tensor, metadata) for tensor, metadata in zip(tensors, local_metadata, strict=True)]
    whole = table.metadata()
    whole = replace(whole, shards_metadata=[_place_on(shard, device) for shard in whole.shards_metadata])
    return ShardedTensor._init_from_local_shards_and_global_metadata(shards, whole, table._process_group)


def _place_on(shard: ShardMetadata, device: str) -> ShardMetadata:
    """Return the metadata of the same part of a table, placed on the host where `device` is `cpu`."""
    assert shard.placement is not None, "every shard is on some rank"
    if device != "cpu":
        return shard
    return ShardMetadata(shard.shard_offsets, shard.shard_sizes, f"rank:{shard.placement.rank()}/cpu")


def _copy_if_shared(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type != "cpu":
        return tensor.detach()
    # Converted as bytes, since numpy does not support every dtype.
    numbers = torch.from_numpy(tensor.detach().reshape(-1).view(torch.uint8).numpy())
    return numbers.view(tensor.dtype).view(tensor.shape)
