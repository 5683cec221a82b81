"""Progressive validation: the model is evaluated on the rows of further files before it is trained on them."""

from collections.abc import Callable

import numpy as np

from dlrm.data.dataset import Dataset
from dlrm.data.rows import RowSource
from dlrm.data.split import FromRow
from dlrm.record import NEW_ROWS, EvaluationReport
from dlrm.reporting.reporter import Reporter
from dlrm.train.evaluator import Evaluator, Scores


class ProgressiveEvaluator:
    """Evaluates the model at the beginning of each piece of a growing log, on the rows of the piece."""

    def __init__(
        self,
        dataset: Dataset,
        batch_rows: int,
        make_evaluator: Callable[[RowSource, Callable[[int, Scores], None]], Evaluator],
        reporter: Reporter,
    ) -> None:
        """Find the rows of every evaluation. batch_rows: rows of a step. make_evaluator: makes one of given rows."""
        log = dataset.growing
        assert log is not None, "the log grows"
        self._train, self._make_evaluator, self._reporter = dataset.train, make_evaluator, reporter
        self._first_label_rate, self._label_rate = dataset.train_label_rate, dataset.train_label_rate
        self._rows = {start // batch_rows: (start, end) for start, end in log.evaluated}
        """First row, and row behind the last one, by the step before which they are evaluated."""

    def __call__(self, step: int) -> EvaluationReport:
        """Evaluate the model after `step` batches on the rows that are trained on next. Collective.

        Raises DivergedError and EvaluationStoppedError, on all ranks.
        """
        start, end = self._rows[step]
        report = self._make_evaluator(FromRow(self._train, end - start, first=start), self._measure_labels)(step)
        figures = report.model_dump(include={"num_rows", "auc", "log_loss", "calibration"})
        figures |= {"step": step, "first_row": start, "label_rate": self._label_rate}
        message = (
            f"rows {start:,} to {end - 1:,}, before they are trained on: AUC {_format(report.auc)}, "
            f"log-loss {report.log_loss:.4f}, calibration {_format(report.calibration)}; "
            f"label rate {self._label_rate:.4f}, {self._first_label_rate:.4f} in the first rows"
        )
        self._reporter.event(NEW_ROWS, message, **figures)
        return report

    def _measure_labels(self, _step: int, scores: Scores) -> None:
        """Measure the share of positives, on the first rank."""
        self._label_rate = float(np.average(scores.labels, weights=scores.weights))


def _format(number: float | None) -> str:
    return "unknown" if number is None else f"{number:.4f}"
