"""Rules on what a run measures: the error of its AUC, and the factors of variance reduction."""

from typing import Any

from dlrm.record import MAX_STANDARD_ERROR, YARDSTICKS, EvaluationSource, format_auc
from service.advice.draft import Draft, Rank
from service.advice.facts import Facts
from service.advice.wording import format_samples, format_share
from service.schemas import AdvisedGain

LEAST_DIFFERENCE = 0.001
"""Smallest difference of two AUCs that matters: the choice of a large batch or of an optimizer makes as much
(docs/large-batch.md)."""
NUM_ERRORS = 2.0
"""Standard errors from which a difference is no chance, in 95 of 100 cases."""
MAX_EVALUATED = 0.5
"""Largest share of the rows that is held out for evaluations: the others are trained on."""
MAX_AT_GAMMA = 0.9
"""Share of the elements at the least factor from which variance reduction is little but a lower rate; a quarter to a
half is usual (docs/methods.md)."""
MAX_AT_ONE = 0.9
"""Share of the elements at factor 1 from which variance reduction leaves nearly all as it is."""
WHOLE_BATCH = 1.0


def advise_more_evaluation_rows(facts: Facts) -> Draft | None:
    """Advise more evaluation rows where the error of the AUC hides what is looked for."""
    auc, error = facts.metrics.get("auc"), facts.metrics.get("auc_standard_error")
    num_rows = facts.metrics.get("num_rows")
    if not auc or not error or not num_rows:
        return None
    finding, wanted = _find_wanted_error(facts, auc, error)
    if wanted is None or wanted >= error:
        return None
    # The standard error falls with the root of the rows.
    factor = (error / wanted) ** 2
    changes: dict[str, Any] = {}
    source = facts.evaluation_source
    remedy = f"{format_samples(num_rows * factor)} instead of {num_rows:,.0f} evaluation rows would tell"
    if source is EvaluationSource.SHARE:
        share = facts.get("data.eval_fraction")
        more = min(MAX_EVALUATED, float(f"{share * factor:.2g}"))
        if more <= share:
            return None
        changes, wanted = {"data.eval_fraction": more}, error * (share / more) ** 0.5
        if share * factor > MAX_EVALUATED:
            remedy += f"; half of all rows bring the error to {wanted:.4f}"
    else:
        remedy += f": {source.value}"
    gain = AdvisedGain(value=error - wanted, unit="AUC", words=f"a standard error of {wanted:.4f}, now {error:.4f}")
    reason = "The error falls with the root of the rows."
    return Draft("large_error", Rank.SIZE, 0.5, f"{finding}: {remedy}.", "high", reason, changes, gain)


def _find_wanted_error(facts: Facts, auc: float, error: float) -> tuple[str, float | None]:
    """Return what the error hides, and the standard error that would show it; None if it hides nothing of use."""
    if error > MAX_STANDARD_ERROR:
        return (
            f"The AUC of {format_auc(auc, error)} cannot tell models apart that differ by less than "
            f"{NUM_ERRORS * error:.2g}",
            MAX_STANDARD_ERROR,
        )
    others = [result for result in facts.yardsticks if result.auc is not None]
    if not others:
        return "", None
    best = max(others, key=lambda result: result.auc or 0.0)
    difference = abs(auc - (best.auc or 0.0))
    if not LEAST_DIFFERENCE <= difference < NUM_ERRORS * error:
        return "", None
    return (
        f"The AUC differs from the {best.auc:.4f} of {YARDSTICKS[best.name]} by {difference:.4f}, less than twice its "
        f"standard error of {error:.4f}",
        difference / NUM_ERRORS,
    )


def advise_variance_reduction(facts: Facts) -> Draft | None:
    """Advise on variance reduction that scales nearly all elements alike."""
    reduction = facts.get("variance_reduction")
    at_gamma, at_one = facts.last_step.get("share_at_gamma"), facts.last_step.get("share_at_one")
    if not reduction or reduction.get("control") is not None or at_gamma is None or at_one is None:
        return None
    gamma = reduction["gamma"]
    if at_gamma >= MAX_AT_GAMMA and gamma < 1.0:
        is_partial = (
            facts.get("moments.estimator") == "exact" and (facts.get("moments.fraction") or WHOLE_BATCH) < WHOLE_BATCH
        )
        message = (
            f"Variance reduction scales {format_share(at_gamma)} of the dense gradient by its least factor, {gamma:g}: "
            + (
                "measure all samples of the batch."
                if is_partial
                else "it is a lower rate and little else; turn it off."
            )
        )
        reason = "A quarter to a half is usual; moments of too few samples are the usual cause of nearly all."
        changes = {"moments.fraction": WHOLE_BATCH} if is_partial else {"variance_reduction": False}
        return Draft("reduction_too_strong", Rank.SIZE, 0.3, message, "medium", reason, changes)
    if at_one >= MAX_AT_ONE:
        message = (
            f"Variance reduction leaves {format_share(at_one)} of the dense gradient as it is, and costs about 3 % of "
            "a step: turn it off."
        )
        reason = "The share is measured in the last step; the cost is of the defaults, as measured on two cores."
        return Draft("reduction_idle", Rank.SIZE, 0.2, message, "medium", reason, {"variance_reduction": False})
    return None
