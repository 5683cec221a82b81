"""Differences between the figures of two groups, with the interval that is known of each."""

import statistics

from dlrm.record.intervals import Estimate, combine_differences, estimate_difference
from service.compare.figures import compute_badness
from service.compare.groups import Group
from service.schemas import ComparedDifference


def compare_figure(name: str, group: Group, base: Group, num_comparisons: int) -> ComparedDifference | None:
    """Compare a figure of a group with the same one of `base`, less which the difference is; None if either lacks it.

    Groups with the same two or more seeds are compared seed by seed: what a seed does to both then cancels out.
    num_comparisons: number of such differences whose intervals shall hold together with 95 %.
    """
    ours, theirs = group.list_figures(name), base.list_figures(name)
    if not ours or not theirs:
        return None
    by_seed = {found.seed: value for found, value in ours}
    base_by_seed = {found.seed: value for found, value in theirs}
    # A label may tell jobs of one seed apart.
    have_pairs = by_seed.keys() == base_by_seed.keys() and 1 < len(by_seed) == len(ours) == len(theirs)
    if have_pairs:
        paired = [value - base_by_seed[seed] for seed, value in by_seed.items()]
        estimate = combine_differences(paired, None, num_comparisons)
        source = "paired seeds"
    else:
        values, base_values = [value for _, value in ours], [value for _, value in theirs]
        errors = group.get_error(name), base.get_error(name)
        estimate = estimate_difference(values, base_values, errors, num_comparisons)
        source = "rows" if estimate.source == "rows" else "seeds" if estimate.half_width is not None else "none"
    badness = [compute_badness(name, statistics.fmean(value for _, value in own)) for own in (ours, theirs)]
    return ComparedDifference(
        mean=estimate.value,
        low=estimate.low,
        high=estimate.high,
        source=source,
        is_better=badness[0] < badness[1],
        is_certain=_excludes_zero(estimate),
    )


def _excludes_zero(estimate: Estimate) -> bool:
    return estimate.half_width is not None and abs(estimate.value) > estimate.half_width
