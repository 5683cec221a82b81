"""No moments: the gradient alone."""

from collections.abc import Iterator

from dlrm.gradient_stats.estimator import Estimator
from dlrm.gradient_stats.moments import Moments
from dlrm.gradient_stats.positions import Share, chunks_of


class NoMoments(Estimator):
    """Measures nothing."""

    def chunks(self, share: Share, index: int, *, is_whole: bool) -> Iterator[tuple[int, int]]:  # noqa: ARG002
        return chunks_of(0, share.size, self._chunk_size)

    def moments(self, num_valid: int, mean_weight: float) -> Moments | None:  # noqa: ARG002
        return None
