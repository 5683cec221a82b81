"""An evaluation as runs report it, where tests need one."""

from dlrm.record import EvaluationReport
from tests.made_reports import make_evaluation


def evaluation(log_loss: float) -> EvaluationReport:
    """Of a model with this log-loss, beside a constant predictor with 0.5."""
    return make_evaluation(9, auc=0.7, log_loss=log_loss, constant_log_loss=0.5)
