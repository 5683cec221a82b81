"""AUC, recall and NDCG within groups, against loops over groups and rows in float64 and scikit-learn."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import ndcg_score, roc_auc_score

from dlrm.metrics import grouped
from dlrm.metrics.grouped import compute_grouped_metrics

Array = NDArray[Any]
RANKS = [1, 3, 10]


def draw_rows(seed: int, *, is_weighted: bool, num_scores: int) -> tuple[Array, Array, Array | None, Array]:
    """Rows of 60 groups, of which some have one label or one row; scores tie where there are few of them."""
    random = np.random.default_rng(seed)
    groups = (60 * random.random(700) ** 2).astype(np.int64) - 1
    labels = (random.random(700) < 0.2).astype(np.float32)
    scores = random.integers(0, num_scores, 700).astype(np.float32) / 8
    weights = random.integers(0, 4, 700).astype(np.float32) if is_weighted else None
    return labels, scores, weights, groups


def compute_gauc(labels: Array, scores: Array, weights: Array, groups: Array) -> tuple[float, int]:
    aucs: list[float] = []
    sizes: list[float] = []
    num_rows = 0
    for group in set(groups[groups >= 0].tolist()):
        own = (groups == group) & (weights > 0)
        if len(set(labels[own].tolist())) == 2:
            aucs.append(float(roc_auc_score(labels[own], scores[own], sample_weight=weights[own])))
            sizes.append(float(weights[own].sum()))
            num_rows += int(own.sum())
    return float(np.average(aucs, weights=sizes)), num_rows


def compute_recall(labels: Array, scores: Array, weights: Array, groups: Array, k: int) -> float:
    """The mean over groups; a positive is found with the probability that a random order of equal scores gives it."""
    recalls: list[float] = []
    for group in set(groups[groups >= 0].tolist()):
        own = np.flatnonzero((groups == group) & (weights > 0))
        positives = [row for row in own if labels[row] == 1]
        if not positives:
            continue
        found = 0.0
        for row in positives:
            above = sum(scores[other] > scores[row] for other in own)
            equal = sum(scores[other] == scores[row] for other in own)
            found += weights[row] * min(max((k - above) / equal, 0.0), 1.0)
        recalls.append(found / sum(weights[row] for row in positives))
    return float(np.mean(recalls))


def compute_ndcg(labels: Array, scores: Array, weights: Array, groups: Array, k: int) -> float:
    """The mean over groups of the gain of the order by score, each place with the mean gain of the rows that tie there,
    by the gain of the order by gain."""
    found: list[float] = []
    for group in set(groups[groups >= 0].tolist()):
        own = (groups == group) & (weights > 0)
        gains, own_scores = (weights * labels)[own].astype(np.float64), scores[own]
        if not gains.any():
            continue
        shared = np.array([gains[own_scores == score].mean() for score in own_scores])
        discounts = np.array([1 / np.log2(place + 1) if place <= k else 0.0 for place in range(1, len(gains) + 1)])
        best = np.sort(gains)[::-1] @ discounts
        found.append(float(shared[np.argsort(-own_scores)] @ discounts / best))
    return float(np.mean(found))


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("num_scores", [3, 10_000])
@pytest.mark.parametrize("piece_rows", [1, 50, 1 << 20])
def test_figures_within_groups_are_those_of_a_loop_over_groups(
    monkeypatch: pytest.MonkeyPatch, is_weighted: bool, num_scores: int, piece_rows: int
) -> None:
    monkeypatch.setattr(grouped, "_PIECE_ROWS", piece_rows)
    labels, scores, weights, groups = draw_rows(1, is_weighted=is_weighted, num_scores=num_scores)
    found = compute_grouped_metrics(labels, scores, weights, groups, RANKS)
    row_weights = np.ones(len(labels)) if weights is None else weights.astype(np.float64)
    gauc, num_rows = compute_gauc(labels, scores, row_weights, groups)
    expected = {f"recall_at_{k}": compute_recall(labels, scores, row_weights, groups, k) for k in RANKS}
    expected |= {f"ndcg_at_{k}": compute_ndcg(labels, scores, row_weights, groups, k) for k in RANKS}
    assert found == pytest.approx({"grouped_auc": gauc, "num_grouped_rows": num_rows, **expected}, abs=1e-12)


def test_one_group_of_all_rows_has_their_auc() -> None:
    labels, scores, _, groups = draw_rows(2, is_weighted=False, num_scores=50)
    found = compute_grouped_metrics(labels, scores, None, np.zeros_like(groups), [])
    assert found["grouped_auc"] == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_ndcg_of_scores_without_ties_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(5)
    labels, scores = (random.random((20, 30)) < 0.2).astype(np.float32), random.permutation(600).reshape(20, 30) / 600
    groups = np.repeat(np.arange(20), 30)
    found = compute_grouped_metrics(labels.ravel(), scores.ravel(), None, groups, [5, 100])
    has_positive = labels.any(axis=1)
    for k in (5, 100):
        expected = ndcg_score(labels[has_positive], scores[has_positive], k=k)
        assert found[f"ndcg_at_{k}"] == pytest.approx(expected, abs=1e-12)


def test_without_a_positive_there_are_no_figures_at_a_rank() -> None:
    found = compute_grouped_metrics(np.zeros(6), np.arange(6), None, np.arange(6) // 2, [1])
    assert (found["recall_at_1"], found["ndcg_at_1"]) == (None, None)


@pytest.mark.parametrize("make_groups", [lambda n: np.full(n, -1), np.arange], ids=["none", "one row each"])
def test_rows_without_a_group_of_both_labels_have_no_gauc(make_groups: Callable[[int], Array]) -> None:
    labels, scores, _, groups = draw_rows(3, is_weighted=False, num_scores=50)
    found = compute_grouped_metrics(labels, scores, None, make_groups(len(groups)), [1])
    assert (found["grouped_auc"], found["num_grouped_rows"]) == (None, 0)
