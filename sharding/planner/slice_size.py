"""How large the slices of an exchange are: what plans count with, and tables exchange by. Imports no torch."""

SLICE_BYTES = 32 * 2**20
"""Of one rank's pooled embeddings in a slice: large enough to fly fast, small beside the block."""
SLICES_IN_FLIGHT = 2
"""Whose pooled embeddings are here or on their way, for a chunk is in two at most; and as many with gradients on their
way back."""


def slice_size(num_samples: int, sample_bytes: int, chunk_size: int) -> int:
    """Samples of a slice, of the `num_samples` of a rank's share.

    sample_bytes: of what arrives of a sample. chunk_size: c at most; a chunk is in two slices at most.
    """
    return min(num_samples, max(chunk_size, SLICE_BYTES // max(1, sample_bytes)))
