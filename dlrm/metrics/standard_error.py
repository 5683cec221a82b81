"""Standard error of an AUC that is not measured yet, from the numbers of rows. Imports no numpy."""

import math


def estimate_auc_standard_error(auc: float, num_positives: int, num_negatives: int) -> float:
    """Estimate the standard error of an AUC from the numbers of rows alone, at least one of each label.

    Hanley and McNeil, "The meaning and use of the area under a receiver operating characteristic (ROC) curve", 1982,
    for scores with a negative exponential distribution.
    """
    both_positives = auc / (2 - auc)
    both_negatives = 2 * auc**2 / (1 + auc)
    variance = auc * (1 - auc)
    variance += (num_positives - 1) * (both_positives - auc**2) + (num_negatives - 1) * (both_negatives - auc**2)
    return math.sqrt(variance / (num_positives * num_negatives))
