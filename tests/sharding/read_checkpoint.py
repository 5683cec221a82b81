"""Reads a checkpoint in one process, independently of the program that wrote it."""

from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load


def read_whole(path: Path) -> dict[str, Any]:
    """Return everything in a checkpoint by name; tensors are assembled from their shards."""
    entries = FileSystemReader(path).read_metadata().state_dict_metadata
    state: dict[str, Any] = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in entries.items()
        if isinstance(entry, TensorStorageMetadata)
    }
    state |= {name: None for name, entry in entries.items() if isinstance(entry, BytesStorageMetadata)}
    load(state, checkpoint_id=path, no_dist=True)
    return state
