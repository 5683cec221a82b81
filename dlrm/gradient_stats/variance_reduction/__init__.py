"""Variance reduction of the dense gradient (VRGD, arXiv 2309.13681)."""

from dlrm.gradient_stats.variance_reduction.factors import AtBounds
from dlrm.gradient_stats.variance_reduction.reduction import VarianceReduction

__all__ = ["AtBounds", "VarianceReduction"]
