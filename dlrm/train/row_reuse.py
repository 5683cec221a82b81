"""Table rows begin anew at the window of the log from which they belong to another id."""

from collections.abc import Callable

import numpy as np
import torch

from dlrm.checkpoint.progress import RunProgress
from dlrm.data.dataset import Dataset
from dlrm.train.build import Parts


def make_row_reuse(parts: Parts, progress: RunProgress, dataset: Dataset) -> Callable[[int], None] | None:
    """Make a function that resets rows for new ids of the next batch.

    It is to be called before each batch with its number of rows, and is collective. Returns None if all ids keep their
    rows. Which rows are due follows from the rows trained on so far alone, so that a resumed run resets the same ones.
    """
    window_rows = dataset.window_rows
    if window_rows is None:
        return None

    def reset_if_due(num_rows: int) -> None:
        # Windows before the last row so far were due before.
        first, last = ((end - 1) // window_rows for end in (progress.num_samples, progress.num_samples + num_rows))
        if first == last:
            return
        due = {
            feature: torch.from_numpy(np.unique(reused[(reused[:, 0] > first) & (reused[:, 0] <= last), 1]))
            for feature, reused in dataset.reused.items()
        }
        due = {feature: rows for feature, rows in due.items() if len(rows)}
        parts.tables.reset_rows(due)
        if parts.average is not None:
            parts.average.restart_rows(due)

    return reset_if_due
