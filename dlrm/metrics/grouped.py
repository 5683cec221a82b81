"""Order of rows within groups, such as the rows of one user: AUC, recall@k and NDCG@k in the mean over groups."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from dlrm.metrics.ranking import Vector
from dlrm.record import GROUPED_AUC, NDCG_AT, NUM_GROUPED_ROWS, RECALL_AT

_PIECE_ROWS = 1 << 20
"""Rows whose sums are in memory at a time, up to the end of their last group."""


def compute_grouped_metrics(
    labels: Vector, scores: Vector, weights: Vector | None, groups: Vector, recall_at: Sequence[int]
) -> dict[str, float | None]:
    """Compute GAUC, recall@k and NDCG@k, by name.

    GAUC is the AUC of each group that has both labels, averaged with the sums of their weights, so of equal rows with
    their numbers (Zhu et al. 2017, arXiv 1703.02091, section 5.1). Recall@k is the share of a group's positives among
    its k best-scored rows, in the mean over groups with a positive. NDCG@k is the sum of w y / log2(i + 1) over the
    places i of these rows, with the weight w and the label y, by the largest sum of any order (Järvelin and Kekäläinen
    2002, with the discount of Burges et al. 2005), in the same mean. Equal scores count half in an AUC, and share the
    places that are left in the other two, as in the mean over all their orders (McSherry and Najork 2008). None without
    such a group.

    labels, scores, weights: [n], as in `compute_binary_metrics`. groups: [n] integers. Rows of a negative one, and of
    weight 0, are in no group.
    """
    is_counted = groups >= 0 if weights is None else (groups >= 0) & (weights > 0)
    rows = np.flatnonzero(is_counted)
    rows = rows[np.lexsort((scores[rows], groups[rows]))]
    auc_sum = weight_sum = 0.0
    num_rows = num_groups = 0
    sums_at = np.zeros((2, len(recall_at)))  # of recall@k and NDCG@k over groups
    for piece in _split_by_group(groups[rows]):
        own = rows[piece]
        sums = _GroupSums(labels[own] == 1, scores[own], None if weights is None else weights[own], groups[own])
        aucs, group_weights, sizes = sums.compute_aucs()
        auc_sum += float(aucs @ group_weights)
        weight_sum += float(group_weights.sum())
        num_rows += int(sizes.sum())
        sums_at += [[of(k).sum() for k in recall_at] for of in (sums.compute_recalls, sums.compute_ndcgs)]
        num_groups += sums.num_with_positive
    return {
        GROUPED_AUC: auc_sum / weight_sum if weight_sum else None,
        NUM_GROUPED_ROWS: num_rows,
        **{
            f"{name}{k}": total / num_groups if num_groups else None
            for name, totals in zip((RECALL_AT, NDCG_AT), sums_at.tolist(), strict=True)
            for k, total in zip(recall_at, totals, strict=True)
        },
    }


class _GroupSums:
    """Rows in ascending order of group and score, as sums over each block of rows of one group and one score."""

    def __init__(self, is_positive: Vector, scores: Vector, weights: Vector | None, groups: Vector) -> None:
        row_weights = np.ones(len(groups)) if weights is None else weights.astype(np.float64)
        is_new_group = np.append(True, groups[1:] != groups[:-1])
        blocks = np.flatnonzero(is_new_group | np.append(True, scores[1:] != scores[:-1]))
        self._first_blocks = np.flatnonzero(is_new_group[blocks])
        """[g] number of each group's first block."""
        self._positives = np.add.reduceat(row_weights * is_positive, blocks)
        self._negatives = np.add.reduceat(row_weights * ~is_positive, blocks)
        self._sizes = np.diff(np.append(blocks, len(groups)))
        self._group_positives, self._group_negatives, self._group_sizes = map(
            self._sum_groups, (self._positives, self._negatives, self._sizes)
        )
        self._has_positive = self._group_positives > 0
        self._above = self._spread(self._group_sizes) - self._count_below(self._sizes) - self._sizes
        """Number of rows of higher scores in the same group."""
        self._best = _BestOrder(row_weights[is_positive], groups[is_positive])

    @property
    def num_with_positive(self) -> int:
        """Number of groups that have a positive."""
        return int(self._has_positive.sum())

    def compute_aucs(self) -> tuple[Vector, Vector, Vector]:
        """Compute AUC, weight and number of rows of each group that has both labels."""
        below = self._count_below(self._negatives)
        won = self._sum_groups(self._positives * (below + self._negatives / 2))
        pairs = self._group_positives * self._group_negatives
        has_both = pairs > 0
        weights = self._group_positives + self._group_negatives
        return won[has_both] / pairs[has_both], weights[has_both], self._group_sizes[has_both]

    def compute_recalls(self, k: int) -> Vector:
        """Compute the share of the positives among the k best-scored rows of each group that has a positive."""
        found = self._sum_groups(self._positives * np.clip(k - self._above, 0, self._sizes) / self._sizes)
        return found[self._has_positive] / self._group_positives[self._has_positive]

    def compute_ndcgs(self, k: int) -> Vector:
        """Compute NDCG@k of each group that has a positive."""
        k = min(k, int(self._group_sizes.max()))
        discounts = np.append(0.0, np.cumsum(1 / np.log2(np.arange(k) + 2)))  # [k + 1], of the first 0, …, k places
        start, end = (np.minimum(place, k) for place in (self._above, self._above + self._sizes))
        found = self._sum_groups(self._positives * (discounts[end] - discounts[start]) / self._sizes)
        return found[self._has_positive] / self._best.compute_gains(k)

    def _sum_groups(self, values: Vector) -> Vector:
        return np.add.reduceat(values, self._first_blocks)

    def _count_below(self, values: Vector) -> Vector:
        """Sum the values of the blocks of lower scores in the same group."""
        before = np.cumsum(values) - values
        return before - self._spread(before[self._first_blocks])

    def _spread(self, of_groups: Vector) -> Vector:
        """Repeat the value of each group for its blocks."""
        return np.repeat(of_groups, np.diff(np.append(self._first_blocks, len(self._sizes))))


class _BestOrder:
    """The positives of each group in descending order of weight: the order of the largest discounted gain."""

    def __init__(self, weights: Vector, groups: Vector) -> None:
        """Order positives. weights, groups: of each, groups in ascending order."""
        self._weights = weights[np.lexsort((-weights, groups))]
        self._starts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1])[: len(groups)])
        lengths = np.diff(np.append(self._starts, len(groups)))
        self._places = np.arange(len(groups)) - np.repeat(self._starts, lengths)

    def compute_gains(self, k: int) -> Vector:
        """Compute the discounted gain of the first k places of each group."""
        gains = np.where(self._places < k, self._weights / np.log2(self._places + 2), 0.0)
        return np.add.reduceat(gains, self._starts) if len(gains) else gains


def _split_by_group(ordered: Vector) -> Iterator[slice]:
    """Yield slices of rows in order of their group: whole groups of about _PIECE_ROWS rows together."""
    if not len(ordered):
        return
    starts = np.append(0, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)
    near = np.arange(0, len(ordered), _PIECE_ROWS)
    cuts = np.unique(starts[np.searchsorted(starts, near, side="right") - 1]).tolist()
    yield from (slice(start, end) for start, end in pairwise([*cuts, len(ordered)]))
