import pytest
import torch

from sharding.pooled_block import PooledBlock

NUM_ROWS, NUM_FEATURES, DIM = 7, 3, 4
ORDER = torch.tensor([2, 0, 1])
"""The caller's features are delivered at these places."""


def random_block(lengths: torch.Tensor | None = None) -> tuple[PooledBlock, torch.Tensor]:
    """A block, and what it holds [b, F, D] in the caller's order."""
    expected = torch.randn(NUM_ROWS, NUM_FEATURES, DIM, generator=torch.Generator().manual_seed(1))
    delivered = torch.empty_like(expected)
    delivered[:, ORDER] = expected
    return PooledBlock(delivered.flatten(1), NUM_FEATURES, order=ORDER, lengths=lengths), expected


def test_a_chunk_and_its_gradient_are_in_the_order_of_the_caller():
    block, expected = random_block()
    assert torch.equal(block.chunk(2, 5), expected[2:5])
    gradient = torch.randn(3, NUM_FEATURES, DIM)
    block.set_gradient(2, 5, gradient)
    assert torch.equal(block.pooled[2:5].view(3, NUM_FEATURES, DIM)[:, ORDER], gradient)


@pytest.mark.parametrize("order", [None, ORDER])
def test_the_gradient_of_a_chunk_takes_the_place_of_that_chunk_alone(order: torch.Tensor | None):
    pooled = torch.randn(NUM_ROWS, NUM_FEATURES * DIM)
    before = pooled.clone()
    block = PooledBlock(pooled, NUM_FEATURES, order=order)
    block.set_gradient(2, 5, torch.zeros(3, NUM_FEATURES, DIM))
    assert block.pooled.data_ptr() == pooled.data_ptr()
    assert not pooled[2:5].any()
    assert torch.equal(pooled[:2], before[:2])
    assert torch.equal(pooled[5:], before[5:])


def test_means_are_sums_over_the_number_of_ids_forward_and_backward():
    lengths = torch.randint(
        0, 5, (NUM_FEATURES, NUM_ROWS), dtype=torch.int32, generator=torch.Generator().manual_seed(2)
    )
    assert (lengths == 0).any()
    block, sums = random_block(lengths)
    num_ids = lengths.t().unsqueeze(2)  # [b, F, 1]
    expected = torch.where(num_ids > 0, sums.double() / num_ids.clamp(min=1), sums.double())
    torch.testing.assert_close(block.chunk(1, 6).double(), expected[1:6], rtol=1e-6, atol=0)
    gradient = torch.randn(5, NUM_FEATURES, DIM)
    block.set_gradient(1, 6, gradient)
    of_sums = block.pooled[1:6].view(5, NUM_FEATURES, DIM)[:, ORDER]
    torch.testing.assert_close(of_sums.double(), gradient.double() / num_ids[1:6].clamp(min=1), rtol=1e-6, atol=0)


def test_without_features_every_chunk_is_empty_and_has_no_gradient():
    block = PooledBlock(torch.empty(0), num_features=0)
    chunk = block.chunk(3, 7).requires_grad_()
    assert chunk.shape == (4, 0, 0)
    block.set_gradient(3, 7, torch.empty(4, 0, 0))
    assert not block.pooled.numel()
