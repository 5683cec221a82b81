"""Report on one dense column."""

from dataclasses import dataclass

import numpy as np

from dlrm.data.inspect.better_use import BetterUse
from dlrm.data.inspect.columns import DenseColumn

QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)
NUM_BARS = 40


@dataclass(frozen=True)
class DenseReport:
    name: str
    missing_share: float
    num_distinct: int
    min: float | None
    max: float | None
    mean: float | None
    quantiles: dict[float, float]
    """Quantiles of the present values, by level in (0, 1); empty if no value is present."""
    edges: list[float]
    """[bars + 1], edges of the histogram, which covers the values between the first and the last of QUANTILES."""
    bars: list[int]
    """Number of values between each two neighbouring edges."""
    is_whole: bool
    """Whether all values are whole numbers."""
    auc: float | None = None
    """AUC of the label predicted from this column alone, on rows it was not fitted on; None with too few rows."""
    auc_by: str = ""
    giveaway: str = ""
    """Value that gives the label away, in words that go on from the name; empty if there is none."""
    better_use: BetterUse | None = None
    """Use as ids or ranges that predicts far better; None if absent, or where the column has such a use."""


def report_dense(column: DenseColumn) -> DenseReport:
    is_present = ~np.isnan(column.values)
    present = column.values[is_present]
    missing_share = 1.0 - len(present) / max(len(column.values), 1)
    if not len(present):
        return DenseReport(column.name, missing_share, 0, None, None, None, {}, [], [], is_whole=False)
    quantiles = np.quantile(present, QUANTILES)
    low, high = quantiles[0], quantiles[-1]
    bars, edges = np.histogram(present, NUM_BARS, (low, high if high > low else low + 1.0))
    return DenseReport(
        name=column.name,
        missing_share=missing_share,
        num_distinct=len(column.distinct_and_codes[0]),
        min=float(present.min()),
        max=float(present.max()),
        mean=float(present.mean()),
        quantiles=dict(zip(QUANTILES, quantiles.tolist(), strict=True)),
        edges=edges.tolist(),
        bars=bars.tolist(),
        is_whole=bool(np.all(present == np.round(present))),
    )
