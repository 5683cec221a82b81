"""Batch of a trial by its line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cli.experiments.report.batches import TrialBatch, find_batch
from cli.experiments.trials.results import CurvePoint, TrialResult
from tests.cli.experiments.report.recorded import make_trial


@pytest.fixture
def trial(tmp_path: Path) -> TrialResult:
    return make_trial(tmp_path, "adam", 1024, 0, keeps_scores=False)


def follow(
    trial: TrialResult, batches: Sequence[int], evaluated: Sequence[int], **fields: dict[str, Any]
) -> TrialResult:
    """Return a trial with the given batch of each step, evaluated after some of them and at its end."""
    steps = [*evaluated, len(batches)]
    curve = [CurvePoint(step=step, num_samples=sum(batches[:step]), auc=0.7, log_loss=0.5) for step in steps]
    return trial.model_copy(
        update={
            "compared": {},
            "settings": {},
            "decided": {},
            "num_steps": len(batches),
            "num_samples": sum(batches),
            "curve": curve,
            **fields,
        }
    )


def test_a_constant_batch_is_told_by_its_name_or_by_steps_and_samples(trial: TrialResult) -> None:
    constant = [512] * 9 + [100]
    assert find_batch(follow(trial, constant, [3, 7])) == TrialBatch(512)
    assert find_batch(follow(trial, constant, [])) == TrialBatch(None)
    assert find_batch(follow(trial, constant, [], decided={"batch.global_size": 512})) == TrialBatch(512)


@pytest.mark.parametrize(
    ("evaluated", "last"), [([], 1000), ([1], 1000), ([4, 7], 400), (range(1, 10), 1000), (range(1, 10), 400)]
)
def test_a_batch_larger_than_an_epoch_is_the_named_one(trial: TrialResult, evaluated: Sequence[int], last: int) -> None:
    short = follow(trial, [1000] * 9 + [last], evaluated, compared={"batch.global_size": 4096})
    assert find_batch(short) == TrialBatch(4096)
    assert find_batch(follow(trial, [1000], [], compared={"batch.global_size": 4096})) == TrialBatch(4096)


@pytest.mark.parametrize(
    ("batches", "evaluated"),
    [
        ([256] * 4 + [1024] * 8 + [17], [4]),
        ([256] * 4 + [1024] * 8 + [17], [6]),
        ([256] * 4 + [512] * 2 + [1024] * 8 + [17], [2, 5, 9]),
    ],
)
def test_a_batch_that_grows_is_no_number_between_its_sizes(
    trial: TrialResult, batches: Sequence[int], evaluated: Sequence[int]
) -> None:
    assert find_batch(follow(trial, batches, evaluated)) == TrialBatch(None, is_growing=True)
    named = follow(trial, batches, evaluated, compared={"batch.global_size": 1024})
    assert find_batch(named) == TrialBatch(1024, is_growing=True)
    assert find_batch(named).constant_size is None
    assert find_batch(follow(trial, batches, [], settings={"batch.global_size": 1024})).is_growing
