"""Warnings of tasks that have nothing to learn from."""

from pathlib import Path

import numpy as np
import pytest

from dlrm.config import TaskConfig
from dlrm.record import BANNERS
from dlrm.train.task_labels import report_task_labels
from tests.dlrm.train.test_run_events import record

TASKS = [
    TaskConfig(name="click"),
    TaskConfig(name="buy", label="bought", given="click"),
    TaskConfig(name="dwell", label="seconds", kind="regression"),
]
NAN = np.nan


@pytest.mark.parametrize(
    ("buy", "dwell", "said"),
    [
        ([0, 0, 1, 0], [1, 2, NAN, 3], []),
        (
            [0, 0, NAN, NAN],
            [1, 2, 3, 4],
            ["task buy: none of the 4 training rows that were counted and have label 1 of click has a"],
        ),
        (
            [0, 0, 1, 0],
            [NAN] * 4,
            ["task dwell: none of the 4 training rows that were counted has a label: nothing can be"],
        ),
        (
            [0, 0, 1, 1],
            [2.5, NAN, 2.5, 2.5],
            [
                "task buy: every label of the 4 training rows that were counted and have label 1 of click is 1",
                "task dwell: every label of the 4 training rows that were counted is 2.5: nothing",
            ],
        ),
    ],
    ids=["learnable", "no purchase", "no time", "one value"],
)
def test_tasks_without_labels_or_with_one_value_are_told(
    tmp_path: Path, buy: list[float], dwell: list[float], said: list[str]
) -> None:
    labels = np.array([[0, 0, 1, 1], buy, dwell], dtype=np.float32).T
    events = record(tmp_path, lambda reporter: report_task_labels(reporter, TASKS, labels))
    assert [event.message[: len(words)] for event, words in zip(events, said, strict=True)] == said
    assert {event.name for event in events} <= set(BANNERS)
