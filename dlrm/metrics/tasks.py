"""Metrics of the tasks of a model after the first, over the rows that have their labels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dlrm.config import TaskConfig, find_parents
from dlrm.metrics.binary import compute_binary_metrics
from dlrm.metrics.filled_zeros import count_known_shares, weigh_filled_zeros
from dlrm.metrics.ranking import Vector

_BINARY, _REGRESSION = ("num_rows", "auc", "log_loss", "calibration"), ("num_rows", "rmse", "mae")


def compute_task_metrics(
    tasks: Sequence[TaskConfig], labels: NDArray[np.float32], scores: NDArray[np.float32], weights: Vector | None
) -> dict[str, float | None]:
    """Compute the metrics of the tasks after the first by name, such as `buy.auc`: AUC, log-loss and calibration of a
    binary one, root mean squared and mean absolute error of regression, and the number of rows.

    labels, scores: [n, T], labels NaN where missing, scores of binary tasks their logits. weights: [n]. A metric of
    rows without any weight is None. Zeros of a task that is given another one count by the share of known labels in
    these rows, see `dlrm.metrics.filled_zeros`.
    """
    parents = find_parents(tasks)
    of_labels = weigh_filled_zeros(labels, parents, count_known_shares(labels, parents))
    found: dict[str, float | None] = {}
    for number, task in enumerate(tasks[1:], start=1):
        is_known = ~np.isnan(labels[:, number])
        own_labels, own_scores = labels[is_known, number], scores[is_known, number]
        own_weights = None if weights is None else weights[is_known]
        if parents[number] is not None:
            own_weights = of_labels[number][is_known] * (1 if own_weights is None else own_weights)
        kind = _BINARY if task.kind == "binary" else _REGRESSION
        if not len(own_labels) or (own_weights is not None and not own_weights.any()):
            measured: dict[str, float | None] = {**dict.fromkeys(kind), "num_rows": len(own_labels)}
        elif task.kind == "binary":
            metrics = compute_binary_metrics(own_labels, own_scores, own_weights)
            measured = {name: getattr(metrics, name) for name in kind}
        else:
            errors = own_scores.astype(np.float64) - own_labels
            rmse = float(np.sqrt(np.average(np.square(errors), weights=own_weights)))
            mae = float(np.average(np.abs(errors), weights=own_weights))
            measured = dict(zip(kind, (len(errors), rmse, mae), strict=True))
        found |= {f"{task.name}.{name}": value for name, value in measured.items()}
    return found
