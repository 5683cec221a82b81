"""Warnings of tasks that have nothing to learn from."""

from collections.abc import Sequence

import numpy as np

from dlrm.config import TaskConfig, find_parents, format_count
from dlrm.record import ONE_LABEL
from dlrm.reporting.reporter import Reporter


def report_task_labels(reporter: Reporter, tasks: Sequence[TaskConfig], labels: np.ndarray) -> None:
    """Warn of each task after the first without any label, or with labels of one value, in some training rows.

    labels: [n, T], NaN where missing. For a task that is given another one, only the rows count where the other one has
    label 1.
    """
    for number, parent in enumerate(find_parents(tasks)):
        if number == 0:
            continue
        task = tasks[number]
        own = labels[:, number] if parent is None else labels[labels[:, parent] == 1, number]
        known = own[~np.isnan(own)]
        rows = f"the {format_count(len(labels), 'training row')} that were counted"
        if parent is not None:
            rows += f" and have label 1 of {tasks[parent].name}"
        if not len(known):
            reporter.event(ONE_LABEL, f"task {task.name}: none of {rows} has a label: nothing can be learned")
        elif known.min() == known.max():
            reporter.event(
                ONE_LABEL, f"task {task.name}: every label of {rows} is {known[0]:g}: nothing can be learned"
            )
