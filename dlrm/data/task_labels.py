"""Labels of the tasks of a model, chosen from the labels that rows have."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dlrm.config import SchemaConfig, TaskConfig, find_parents, find_unlabelled_task
from dlrm.data.dataset import Dataset
from dlrm.data.errors import DataError
from dlrm.data.rows import Renumbered, Rows


@dataclass(frozen=True)
class TaskLabels:
    """Columns of the labels of tasks, and the earlier tasks that they depend on."""

    columns: Sequence[int]
    """Column of each task after the first in the further labels of rows."""
    parents: Sequence[int | None]
    """Number of the task that each of these tasks is given; None if it stands alone."""

    def choose(self, rows: Rows) -> Rows:
        """Return the rows with the labels [n, T - 1] of the tasks after the first as their further labels.

        If a task is given another one, its label is 0 in rows of label 0 of the other one, and missing in rows without
        a label of it.
        """
        if not self.columns:
            return replace(rows, further_labels=None)
        assert rows.further_labels is not None, "the schema of the rows has them"
        labels: list[NDArray[np.float32]] = [rows.labels]
        for column, parent in zip(self.columns, self.parents, strict=True):
            own = rows.further_labels[:, column]
            if parent is not None:
                own = np.where(labels[parent] == 0, labels[parent], labels[parent] * own)
            labels.append(own)
        return replace(rows, further_labels=np.stack(labels[1:], axis=1))


@dataclass(frozen=True)
class TaskRows(Renumbered):
    """All rows of a source, with the labels of tasks."""

    labels: TaskLabels

    def find(self, row_numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return row_numbers

    def read(self, row_numbers: NDArray[np.int64]) -> Rows:
        return self.labels.choose(self.source.read(row_numbers))


def find_task_labels(tasks: Sequence[TaskConfig] | None, schema: SchemaConfig | None) -> TaskLabels:
    """Find the labels of tasks among the further labels of rows. Raises DataError if a task's label is missing there.

    schema: columns of the rows; None for a synthetic log, which has none.
    """
    tasks, further = tasks or (), () if schema is None else schema.further_labels
    if found := find_unlabelled_task(tasks, further):
        number, task, fitting = found
        message = f"the rows have no {task.kind} label {task.label!r}"
        valid = ", ".join(fitting) or f"rows prepared with data.schema.further_labels of kind {task.kind}"
        raise DataError(message, field=f"model.tasks.{number}.label", valid=valid)
    columns = [label.name for label in further]
    return TaskLabels([columns.index(task.label or "") for task in tasks[1:]], find_parents(tasks)[1:])


def choose_labels(dataset: Dataset, tasks: Sequence[TaskConfig] | None) -> Dataset:
    """Return the data with the labels of tasks alone. Raises DataError as `find_task_labels` does."""
    schema = None if dataset.encoders is None else dataset.encoders.schema
    labels = find_task_labels(tasks, schema)
    if schema is None or not schema.further_labels:
        return dataset
    train, evaluation = (
        TaskRows(source, source.num_rows, labels=labels) for source in (dataset.train, dataset.evaluation)
    )
    return replace(dataset, train=train, evaluation=evaluation)
