"""No moments: the gradient alone."""

from collections.abc import Iterator

from dlrm.moments.estimator import Estimator, Positions
from dlrm.moments.moments import Moments


class NoMoments(Estimator):
    """Measures nothing."""

    def chunks(self, share: Positions, index: int, *, is_whole: bool) -> Iterator[tuple[int, int]]:  # noqa: ARG002
        return self._chunks(share)

    def moments(self, num_valid: int, mean_weight: float) -> Moments | None:  # noqa: ARG002
        return None
