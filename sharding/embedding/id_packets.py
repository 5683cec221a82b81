"""The packets in which ids travel to the owners of their rows, in no more bytes than they need.

A packet is the ids of the bags of some shards, then the numbers of ids of these bags. Ids are rows of a shard, and take
4 bytes unless one of the receiver's shards has more than 2^31 rows. The length of a bag takes 1 byte, none if all bags
of the packet have one id, and 4 bytes if one has more than 255.
"""

from dataclasses import dataclass

import torch

from sharding.embedding.shard import ShardSpec

MAX_INT32 = 2**31 - 1
LENGTH_DTYPES = {1: torch.uint8, 4: torch.int32}
"""Dtypes of the lengths of bags by their bytes."""
ALIGNMENT = 8
"""Bytes of a packet are a multiple of this, so that the next packet in the same memory begins where ids may."""


@dataclass(frozen=True)
class ShardIds:
    """The ids of a share whose rows one shard holds."""

    lengths: torch.Tensor
    """[b]"""
    ids: torch.Tensor
    """Rows of the shard."""


@dataclass(frozen=True)
class PacketLayout:
    """The layout of the packet with the ids of one rank's samples for all shards of another rank."""

    num_ids: int
    id_dtype: torch.dtype
    num_bags: int
    length_bytes: int
    """Bytes of the length of a bag, 0 if all bags have one id."""

    @property
    def num_bytes(self) -> int:
        content = self._num_id_bytes + self.num_bags * self.length_bytes
        return -(-content // ALIGNMENT) * ALIGNMENT

    def view_ids(self, packet: torch.Tensor) -> torch.Tensor:
        """View the ids [n] of a packet [num_bytes] uint8."""
        return packet[: self._num_id_bytes].view(self.id_dtype)

    def view_lengths(self, packet: torch.Tensor) -> torch.Tensor:
        """View the lengths [num_bags] of a packet [num_bytes] uint8, which has some."""
        content = packet[self._num_id_bytes : self._num_id_bytes + self.num_bags * self.length_bytes]
        return content.view(LENGTH_DTYPES[self.length_bytes])

    @property
    def _num_id_bytes(self) -> int:
        return self.num_ids * self.id_dtype.itemsize


def choose_id_dtype(specs: list[ShardSpec]) -> torch.dtype:
    """Choose the dtype that holds every row of the shards `specs`."""
    return torch.int32 if all(spec.block.num_rows - 1 <= MAX_INT32 for spec in specs) else torch.int64


def lay_out_packet(by_shard: list[ShardIds], specs: list[ShardSpec]) -> PacketLayout:
    """Lay out a packet of ids for the shards `specs` of one rank."""
    return PacketLayout(
        num_ids=sum(len(of_shard.ids) for of_shard in by_shard),
        id_dtype=choose_id_dtype(specs),
        num_bags=sum(len(of_shard.lengths) for of_shard in by_shard),
        length_bytes=_choose_length_bytes(by_shard),
    )


def write_packet(packet: torch.Tensor, layout: PacketLayout, by_shard: list[ShardIds]) -> None:
    """Write ids into `packet` [num_bytes] uint8, shard by shard and sample by sample."""
    if layout.num_ids:
        torch.cat([of_shard.ids for of_shard in by_shard], out=layout.view_ids(packet))
    if layout.num_bags and layout.length_bytes:
        torch.cat([of_shard.lengths for of_shard in by_shard], out=layout.view_lengths(packet))


def read_packet(packet: torch.Tensor, layout: PacketLayout) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ids [n] int64 and the lengths [num_bags] of the bags of a packet."""
    ids = layout.view_ids(packet).to(torch.int64)
    if layout.length_bytes == 0:
        return ids, torch.ones(layout.num_bags, dtype=torch.uint8)
    return ids, layout.view_lengths(packet)


def _choose_length_bytes(by_shard: list[ShardIds]) -> int:
    bounds = [of_shard.lengths.aminmax() for of_shard in by_shard if len(of_shard.lengths)]
    least, most = min((int(low) for low, _ in bounds), default=1), max((int(high) for _, high in bounds), default=1)
    if least == most == 1:
        return 0
    return 1 if most <= torch.iinfo(torch.uint8).max else 4
