"""Copies of batches through pinned memory, with a CPU in the place of a GPU: the same code, plain memory."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch

from dlrm.data.batches import Batch
from dlrm.data.order import BlockHalves
from dlrm.train.batch import DeviceBatch, to_device
from dlrm.train.input_copies import PinnedRing, copy_to_device
from sharding.jagged import JaggedIds

CPU = torch.device("cpu")
NUM_ROWS = [5, 3, 64, 64, 1, 700, 20]


def draw_batch(index: int, num_rows: int, num_dense: int = 3, num_features: int = 4) -> Batch:
    """Draw rows with bags of 0 to 3 ids; batches of odd number have weights and halves."""
    random = np.random.default_rng(index)
    lengths = random.integers(0, 4, (num_features, num_rows)).astype(np.int32)
    return Batch(
        index=index,
        dense=random.normal(size=(num_rows, num_dense)).astype(np.float32),
        ids=JaggedIds(random.integers(0, 2**31, lengths.sum()), lengths),
        labels=random.integers(0, 2, num_rows).astype(np.float32),
        mask=np.ones(num_rows, dtype=np.float32),
        weights=random.random(num_rows).astype(np.float32) if index % 2 else None,
        num_valid=2 * num_rows,
        halves=BlockHalves(num_rows, 0.5, index) if index % 2 else None,
    )


def list_tensors(batch: DeviceBatch) -> list[torch.Tensor]:
    return [batch.dense, batch.ids.values, batch.ids.lengths, batch.labels, batch.mask, batch.weights]


@pytest.mark.parametrize("id_dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(("num_dense", "num_features"), [(3, 4), (0, 4), (3, 0)])
def test_copies_of_any_size_hold_the_batches_while_others_are_made(
    id_dtype: torch.dtype, num_dense: int, num_features: int
):
    batches = [draw_batch(index, rows, num_dense, num_features) for index, rows in enumerate(NUM_ROWS)]
    # All of them are alive at once.
    copies = [*PinnedRing(CPU, id_dtype).copy_ahead(batches)]
    assert len(copies) == len(batches)
    for copy, batch in zip(copies, batches, strict=True):
        expected = to_device(batch, CPU)
        assert copy.ids.values.dtype == id_dtype
        for tensor, source in zip(list_tensors(copy), list_tensors(expected), strict=True):
            assert tensor.is_contiguous()
            assert tensor.data_ptr() % 64 == 0
            assert torch.equal(tensor, source.to(tensor.dtype))
        assert (copy.index, copy.num_valid, copy.halves) == (batch.index, batch.num_valid, batch.halves)


def test_pinned_memory_is_kept_and_written_again_only_after_its_copy(monkeypatch: pytest.MonkeyPatch):
    """A batch is fetched right before its memory is chosen, and its copy ends at an event."""
    log: list[tuple[str, object]] = []

    class Event(torch.cpu.Event):
        def record(self, stream: object = None) -> None:  # noqa: ARG002
            log.append(("copied", self))

        def synchronize(self) -> None:
            log.append(("waited", self))

    monkeypatch.setattr(torch.cpu, "Event", Event)
    allocated: list[int] = []
    make_empty = torch.empty

    def count_empty(num_elements: int, **options: object) -> torch.Tensor:
        if "pin_memory" in options:
            allocated.append(num_elements)
        return make_empty(num_elements, **options)  # pyright: ignore

    def fetch() -> Iterator[Batch]:
        for index in range(12):
            log.append(("fetched", index))
            yield replace(draw_batch(0, 64), index=index)

    with monkeypatch.context() as context:
        context.setattr(torch, "empty", count_empty)
        copies = PinnedRing(CPU, torch.int32).copy_ahead(fetch())
        next(copies)
        assert [name for name, _ in log].count("copied") == 2, "the second copy is under way in the first step"
        assert len([*copies]) == 11
    assert len(allocated) == 3
    waited = [event for name, event in log if name == "waited"]
    copied = [event for name, event in log if name == "copied"]
    assert waited == copied
    for number in range(3, 12):
        # The wait for the copy of three batches before is the last thing before the memory is written.
        wait = [place for place, (name, _) in enumerate(log) if name == "waited"][number]
        assert ("copied", waited[number]) in log[:wait]
        assert log[wait - 1] == ("fetched", number)


def test_a_ring_that_is_closed_early_ends_its_thread_and_raises_errors_of_the_rows():
    def fail() -> Iterator[Batch]:
        yield draw_batch(0, 5)
        yield draw_batch(1, 5)
        raise OSError("no more rows")

    with closing(PinnedRing(CPU, torch.int64).copy_ahead(draw_batch(index, 5) for index in range(9))) as copies:
        assert next(copies).index == 0
    with pytest.raises(OSError, match="no more rows"):
        list(PinnedRing(CPU, torch.int64).copy_ahead(fail()))


def test_a_cpu_shares_the_memory_of_the_rows():
    batch = replace(draw_batch(1, 5), weights=None)
    (shared,) = copy_to_device([batch], CPU, torch.int64)
    assert shared.dense.data_ptr() == batch.dense.ctypes.data
    assert shared.ids.values.data_ptr() == batch.ids.values.ctypes.data
    assert shared.weights is shared.mask
