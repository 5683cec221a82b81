"""Where a rank of a machine lays what the others need for their update: its ids, and the gradients of its bags."""

import torch

from sharding.comm.shared_memory import SharedBuffer, round_up_to_cache_line
from sharding.embedding.jagged import JaggedIds

INDEX = torch.int64


class SharedBatchBuffer:
    """One shared buffer: the offsets of bags, the gradients, and the ids, which may become more from batch to batch.

    Written by its rank between the lookup and the agreement of a step, read by all between the agreement and the end of
    the update.
    """

    def __init__(
        self, buffer: SharedBuffer, num_features: int, gradient_shape: tuple[int, int, int], dtype: torch.dtype
    ) -> None:
        """gradient_shape: (features whose tables are split, b, D). dtype: of the gradients."""
        self.num_samples = gradient_shape[1]
        self._buffer = buffer
        self._first_id_byte = self.num_bytes(num_features, gradient_shape, dtype)
        self.offsets = buffer.tensor(INDEX, (num_features * self.num_samples + 1,))
        """[F * b + 1]"""
        self.gradients = buffer.tensor(dtype, gradient_shape, _offset_bytes(num_features * self.num_samples + 1))
        """By feature, then by sample, so that one table's lie together."""

    @staticmethod
    def num_bytes(num_features: int, gradient_shape: tuple[int, int, int], dtype: torch.dtype) -> int:
        """Without ids."""
        num_split, num_samples, dim = gradient_shape
        gradient_bytes = num_split * num_samples * dim * dtype.itemsize
        return _offset_bytes(num_features * num_samples + 1) + round_up_to_cache_line(gradient_bytes)

    def write_ids(self, bags: JaggedIds) -> None:
        """Of the rank itself."""
        self._buffer.map_at_least(self._first_id_byte + bags.ids.nbytes, is_owner=True)
        torch.cumsum(bags.lengths, 0, out=self.offsets[1:])
        self.ids().copy_(bags.ids)

    def ids(self) -> torch.Tensor:
        """[n] int64, as they lie there now."""
        num_ids = int(self.offsets[-1])
        self._buffer.map_at_least(self._first_id_byte + num_ids * INDEX.itemsize)
        return self._buffer.tensor(INDEX, (num_ids,), self._first_id_byte)

    def offsets_of(self, feature: int) -> torch.Tensor:
        """[b + 1] of one feature's bags, as places among all ids."""
        first = feature * self.num_samples
        return self.offsets[first : first + self.num_samples + 1]


def _offset_bytes(num_offsets: int) -> int:
    return round_up_to_cache_line(num_offsets * INDEX.itemsize)
