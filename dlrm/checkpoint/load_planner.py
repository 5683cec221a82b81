"""Loads of torch.distributed.checkpoint that decode rows of int8 on their way into fp32."""

from collections.abc import Callable

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import STATE_DICT_TYPE, Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import ReadItem

from sharding.embedding.int8_rows import to_fp32


class DecodingPlanner(DefaultLoadPlanner):
    """Planner of a load into tensors in place, piece by piece."""

    def __init__(self, after_piece: Callable[[], None] | None = None) -> None:
        """Set what is called after each piece of a tensor, if anything."""
        super().__init__()
        self._after_piece = after_piece
        self._decoded: dict[str, torch.Tensor] = {}
        """Tensors [R, C] in fp32, by name, whose rows are int8 in the checkpoint."""

    def set_up_planner(
        self, state_dict: STATE_DICT_TYPE, metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """Find the tensors that are decoded; their pieces are read as bytes."""
        super().set_up_planner(state_dict, metadata, is_coordinator)
        assert metadata is not None, "the checkpoint has metadata"
        for name, tensor in list(self.state_dict.items()):
            saved = metadata.state_dict_metadata.get(name)
            if not isinstance(saved, TensorStorageMetadata) or saved.properties.dtype != torch.uint8:
                continue
            if type(tensor) is torch.Tensor and tensor.dtype == torch.float32:
                self._decoded[name] = tensor
                # A shape without memory: nothing is read into it.
                self.state_dict[name] = torch.empty(1, dtype=torch.uint8).expand(saved.size)

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        """Return where a piece is read to."""
        if read_item.dest_index.fqn in self._decoded:
            return torch.empty(read_item.lengths, dtype=torch.uint8)
        return super().resolve_tensor(read_item)

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        """Decode a piece that was read, if it is rows of int8."""
        if (decoded := self._decoded.get(read_item.dest_index.fqn)) is not None:
            first_row = read_item.dest_offsets[0]
            decoded[first_row : first_row + len(tensor)].copy_(to_fp32(tensor))
        if self._after_piece is not None:
            self._after_piece()
