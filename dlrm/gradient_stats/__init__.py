"""Gradient moments of the dense parameters: mean and mean square, measured while a batch is trained on."""

from dlrm.gradient_stats.estimator import Estimator
from dlrm.gradient_stats.exact import ExactMoments
from dlrm.gradient_stats.groups import GroupMoments
from dlrm.gradient_stats.make import make_estimator
from dlrm.gradient_stats.moments import Moments
from dlrm.gradient_stats.none import NoMoments
from dlrm.gradient_stats.positions import Share

__all__ = [
    "Estimator",
    "ExactMoments",
    "GroupMoments",
    "Moments",
    "NoMoments",
    "Share",
    "make_estimator",
]
