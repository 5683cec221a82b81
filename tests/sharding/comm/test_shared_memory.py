import gc
from pathlib import Path

import pytest
import torch

from sharding.comm.shared_memory import SharedBuffer, SharedBufferHandle
from sharding.embedding.memory_transport import SharedBatchBuffer
from sharding.jagged import JaggedIds


def test_both_processes_read_and_write_the_same_memory():
    buffer = SharedBuffer.create(1 << 20)
    opened = SharedBuffer.open(buffer.handle)
    buffer.view_tensor(torch.float32, (3, 4), first_byte=64).copy_(torch.arange(12.0).view(3, 4))
    assert torch.equal(opened.view_tensor(torch.float32, (12,), first_byte=64), torch.arange(12.0))
    opened.view_tensor(torch.float32, (12,), first_byte=64)[5] = 7.5
    assert buffer.view_tensor(torch.float32, (3, 4), first_byte=64)[1, 1] == 7.5


def test_a_buffer_made_larger_is_larger_for_earlier_openers_too():
    buffer = SharedBuffer.create(4096)
    opened = SharedBuffer.open(buffer.handle)
    from_before = buffer.view_tensor(torch.int64, (4,))
    from_before.copy_(torch.arange(4))
    buffer.map_at_least(1_000_000, is_owner=True)
    buffer.view_tensor(torch.int64, (100_000,))[-1] = 5
    opened.map_at_least(800_000)
    read = opened.view_tensor(torch.int64, (100_000,))
    assert read[-1] == 5
    assert torch.equal(read[:4], torch.arange(4))
    read[0] = 9
    assert from_before[0] == 9


def test_memory_and_descriptors_are_given_back_with_the_last_tensor():
    def num_open() -> int:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    before = num_open()
    buffer = SharedBuffer.create(1 << 20)
    opened = SharedBuffer.open(buffer.handle)
    tensor = opened.view_tensor(torch.float32, (8,))
    del buffer, opened
    tensor.fill_(3.0)
    assert tensor.sum() == 24.0
    del tensor
    assert num_open() == before


def test_a_handle_of_nothing_is_refused():
    with pytest.raises(OSError, match="No such file"):
        SharedBuffer.open(SharedBufferHandle(process=1 << 22, descriptor=3))


def test_a_batch_buffer_shows_others_the_ids_and_gradients_of_batches_of_any_length():
    shape = (2, 3, 4)
    own = SharedBuffer.create(SharedBatchBuffer.count_bytes(2, shape, torch.float16))
    own_buffer = SharedBatchBuffer(own, 2, shape, torch.float16)
    other_buffer = SharedBatchBuffer(SharedBuffer.open(own.handle), 2, shape, torch.float16)
    for lengths in ([1, 0, 2, 3, 1, 0], [0] * 6, [900] * 6):
        counts = torch.tensor(lengths, dtype=torch.int32).view(2, 3)
        ids = torch.randint(0, 1000, (sum(lengths),))
        own_buffer.write_ids(JaggedIds(ids, counts))
        gradients = torch.randn(shape).half()
        own_buffer.gradients.copy_(gradients)
        assert torch.equal(other_buffer.view_ids(), ids)
        assert torch.equal(other_buffer.gradients, gradients)
        assert torch.equal(
            torch.cat([other_buffer.view_offsets(0).diff(), other_buffer.view_offsets(1).diff()]),
            counts.flatten().long(),
        )
