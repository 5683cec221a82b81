"""Sharpness of a trained model around its dense parameters, and its gap between training and evaluation rows."""

from collections.abc import Mapping

from dlrm.record.files import OpenRecord

SHARPNESS_FIGURES = {
    "box_sharpness": "sharpness in a box of 0.001",
    "small_box_sharpness": "sharpness in a box of 0.0005",
    "hessian_eigenvalue": "largest eigenvalue of the Hessian",
    "train_auc_gap": "AUC on training rows less evaluation rows",
    "train_log_loss_gap": "log-loss on training rows less evaluation rows",
}
"""Metrics of an outcome that `run.sharpness` adds, and what they are called."""


class Sharpness(OpenRecord):
    """Sharpness of a mean log-loss in the dense parameters, on a sample of training rows."""

    box_sharpness: float
    """Percentage 100 (max f - f) / (1 + f), where f is the log-loss. Its maximum is over the box in which each
    parameter x changes by at most 0.001 (|x| + 1) (Keskar et al. 2017, arXiv 1609.04836, metric 2.1)."""
    small_box_sharpness: float
    """The same for the box of 0.0005."""
    hessian_eigenvalue: float
    """Largest eigenvalue of the Hessian of the log-loss."""
    train_auc: float | None
    """AUC on the sample; null if its rows have one class only."""
    train_log_loss: float
    """Log-loss on the sample."""

    def to_metrics(self, evaluation: Mapping[str, float | None]) -> dict[str, float | None]:
        """Return the entries of the metrics of an outcome, the keys of SHARPNESS_FIGURES.

        evaluation: AUC and log-loss of the same model on the evaluation rows, by name.
        """
        auc, log_loss = evaluation.get("auc"), evaluation.get("log_loss")
        return {
            "box_sharpness": self.box_sharpness,
            "small_box_sharpness": self.small_box_sharpness,
            "hessian_eigenvalue": self.hessian_eigenvalue,
            "train_auc_gap": None if self.train_auc is None or auc is None else self.train_auc - auc,
            "train_log_loss_gap": None if log_loss is None else self.train_log_loss - log_loss,
        }
