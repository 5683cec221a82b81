"""The size of the slices of an exchange, for memory estimates and for the exchange itself. Imports no torch."""

SLICE_BYTES = 8 * 2**20
"""Bytes of a slice of one rank's pooled embeddings: small, since a rank waits for the first one, and for the gradients
of the last. On no link that was tried do larger ones travel faster (benchmarks/experiments.md)."""
SLICES_IN_FLIGHT = 2
"""Slices per direction that may be resident or in flight: a chunk spans at most two."""


def compute_slice_size(num_samples: int, sample_bytes: int, chunk_size: int) -> int:
    """Compute the samples of a slice of a rank's share of `num_samples`.

    sample_bytes: bytes of the pooled embeddings of one sample. chunk_size: samples of a chunk; a slice is no smaller,
    so that a chunk spans at most two slices.
    """
    return min(num_samples, max(chunk_size, SLICE_BYTES // max(1, sample_bytes)))
