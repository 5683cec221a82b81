"""Packets of ids: what they hold, and how few bytes they take."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sharding.embedding.id_packets import PacketLayout, ShardIds, lay_out_packet, read_packet, write_packet
from sharding.embedding.shard import ShardSpec
from sharding.planner import Block, Table

FILLING_BYTES = 7
"""Most bytes of a packet that hold nothing."""


def make_spec(num_rows: int) -> ShardSpec:
    return ShardSpec(0, Table("ids", num_rows, 4), Block(0, 0, num_rows, 0, 4))


def make_ids(bags: list[list[int]]) -> ShardIds:
    lengths = torch.tensor([len(bag) for bag in bags], dtype=torch.int32)
    return ShardIds(lengths, torch.tensor([row for bag in bags for row in bag], dtype=torch.int64))


def pack(by_shard: list[ShardIds], specs: list[ShardSpec]) -> tuple[torch.Tensor, PacketLayout]:
    layout = lay_out_packet(by_shard, specs)
    packet = torch.empty(layout.num_bytes, dtype=torch.uint8)
    write_packet(packet, layout, by_shard)
    return packet, layout


@given(
    shards=st.lists(st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=4), max_size=6), max_size=4),
    num_rows=st.sampled_from([2**31, 2**31 + 1]),
)
def test_a_packet_holds_ids_and_lengths_shard_by_shard(shards: list[list[list[int]]], num_rows: int) -> None:
    by_shard = [make_ids(bags) for bags in shards]
    ids, lengths = read_packet(*pack(by_shard, [make_spec(num_rows)] * len(shards)))
    assert ids.dtype == torch.int64
    assert ids.tolist() == [row for bags in shards for bag in bags for row in bag]
    assert lengths.tolist() == [len(bag) for bags in shards for bag in bags]


@pytest.mark.parametrize(
    ("bags", "num_rows", "num_bytes"),
    [
        ([[5]] * 100, 10, 100 * 4),
        ([[5]] * 99 + [[]], 10, 99 * 4 + 100),
        ([[5]] * 100, 2**31, 100 * 4),
        ([[2**31]] * 100, 2**31 + 1, 100 * 8),
        ([[1, 2, 3]] * 100, 10, 300 * 4 + 100),
        ([[1] * 255, [2]], 10, 256 * 4 + 2),
        ([[1] * 256, [2]], 10, 257 * 4 + 2 * 4),
        ([], 10, 0),
    ],
)
def test_ids_and_lengths_take_as_few_bytes_as_hold_them(bags: list[list[int]], num_rows: int, num_bytes: int) -> None:
    packet, _ = pack([make_ids(bags)], [make_spec(num_rows)])
    assert num_bytes <= packet.nbytes <= num_bytes + FILLING_BYTES


def test_the_largest_row_of_a_shard_of_more_than_int32_rows_arrives() -> None:
    ids, lengths = read_packet(*pack([make_ids([[2**40 - 1], []])], [make_spec(2**40)]))
    assert (ids.tolist(), lengths.tolist()) == ([2**40 - 1], [1, 0])
