"""Judgement of a comparison in sentences: the better group, and how certain that is."""

import math
from collections.abc import Sequence
from string import ascii_uppercase

from service.compare.differences import compare_figure
from service.compare.figures import compute_badness
from service.compare.groups import Group
from service.schemas import ComparedDifference, Verdict

JUDGED = {"auc": "AUC", "log_loss": "log-loss"}
"""Figures that judge, the first one first, each with its name in a sentence."""
MAX_SEEDS = 100
"""Number of seeds beyond which no more are advised."""
MAX_TIMES = 100
"""Number of times as many rows beyond which no more are advised."""
SEEDS = 3
"""Number of seeds that are advised if nothing is known of their chance."""
_DATA = "data."


def judge(groups: Sequence[Group]) -> Verdict:
    """Judge groups, the first one the baseline, by their AUC, or by their log-loss if they have no AUC."""
    for name, word in JUDGED.items():
        ranked = sorted(
            (compute_badness(name, mean), number)
            for number, group in enumerate(groups)
            if (mean := group.compute_mean(name)) is not None
        )
        if len(ranked) > 1:
            return _judge_ranked(name, word, groups, [number for _, number in ranked])
    if len(groups) == 1:
        return Verdict(
            sentence="These jobs are one method: they differ in their seeds alone.",
            advice="Add a job with other settings to compare them with.",
        )
    num_ended = sum(1 for group in groups if group.list_figures("seconds"))
    reason = "have succeeded, and have an AUC or a log-loss" if num_ended else "have succeeded"
    return Verdict(
        sentence=f"Nothing can be judged yet: fewer than two methods {reason}.",
        advice="Wait until they have, or compare other jobs; curves show how far each is.",
    )


def _judge_ranked(name: str, word: str, groups: Sequence[Group], ranked: Sequence[int]) -> Verdict:
    """Judge groups by one figure. ranked: the numbers of groups that have it, best first."""
    best, other = ranked[0], 0 if ranked[0] != 0 and 0 in ranked else ranked[1]
    # The best one of several may be so by luck: all comparisons with it hold together.
    difference = compare_figure(name, groups[best], groups[other], len(ranked) - 1)
    assert difference is not None
    counts = (len(groups[best].list_figures(name)), len(groups[other].list_figures(name)))
    named, named_other = _name(groups, best), _name(groups, other)
    mean = f"{groups[best].compute_mean(name):.4f}"
    if difference.mean == 0:
        sentence = f"{named} and {named_other} have the same {word}, {mean}."
    else:
        which = f"the better {word}" if len(ranked) == 2 else f"the best {word} of {len(ranked)}"
        away = f"{_format(difference.mean)} {'above' if difference.mean > 0 else 'below'} {named_other}"
        size = "" if difference.source == "none" else f", which is {_judge_size(difference)}"
        sentence = f"{named} has {which}, {mean}: {away}{size}."
    return Verdict(
        sentence=sentence + _compare_next(name, groups, ranked, other),
        best=best,
        other=other,
        is_certain=None if difference.source == "none" else difference.is_certain,
        basis=_explain_basis(difference, counts, len(ranked)) + _warn_of_data(groups[best], groups[other]),
        advice=_advise(difference, counts),
    )


def _compare_next(name: str, groups: Sequence[Group], ranked: Sequence[int], other: int) -> str:
    """Say how far the second best group is from the best one, if that is not the comparison with the baseline."""
    if len(ranked) < 3 or ranked[1] == other:
        return ""
    difference = compare_figure(name, groups[ranked[0]], groups[ranked[1]], len(ranked) - 1)
    assert difference is not None
    size = "" if difference.source == "none" else f", which is {_judge_size(difference)}"
    return f" The next one, {_name(groups, ranked[1])}, is {_format(difference.mean)} away{size}."


def _judge_size(difference: ComparedDifference) -> str:
    return f"{'more than' if difference.is_certain else 'within'} its uncertainty"


def _explain_basis(difference: ComparedDifference, counts: tuple[int, int], num_groups: int) -> str:
    """Say what the uncertainty is made of, and what it leaves out. counts: numbers of jobs of both groups."""
    if difference.source == "none":
        return "Nothing is known of the uncertainty: there is one job on either side, without a standard error."
    assert difference.low is not None
    assert difference.high is not None
    name = "95 % interval" if num_groups == 2 else "interval"
    interval = f"The {name} of the difference is {difference.low:+.4f} to {difference.high:+.4f}"
    luck = f" The best of {num_groups} may be so by luck, so the interval is widened: with 95 % certainty"
    luck = "" if num_groups == 2 else f"{luck} all {num_groups - 1} comparisons with the best one hold at once."
    rows = f"It holds for these evaluation rows.{luck}"
    if difference.source == "paired seeds":
        return f"{interval}, from {counts[0]} pairs of jobs with the same seed. {rows}"
    if difference.source == "seeds" and min(counts) == 1:
        return f"{interval}: a single job beside {max(counts)} seeds, whose spread is taken for both. {rows}"
    if difference.source == "seeds":
        return f"{interval}, over {counts[0]} and {counts[1]} seeds. {rows}"
    return (
        f"{interval}, by the choice of the evaluation rows, and at most that wide if both have the same rows. "
        f"How much another seed would change is not known: each has one.{luck}"
    )


def _warn_of_data(best: Group, other: Group) -> str:
    """Warn if two groups differ in their data, and so perhaps in the rows on which they were evaluated."""
    fields = {field for field in best.settings | other.settings if field.startswith(_DATA)}
    differing = sorted(field for field in fields if best.settings.get(field) != other.settings.get(field))
    if not differing:
        return ""
    return f" Their data differ ({', '.join(differing[:3])}), so that the figures may be of different rows."


def _advise(difference: ComparedDifference, counts: tuple[int, int]) -> str:
    """Say what would make a judgement certain, or more so. counts: numbers of jobs of both groups."""
    if difference.source in ("rows", "none"):
        seeds = f"train each with {SEEDS} seeds (run.seed) and compare all of these jobs"
        if difference.is_certain:
            return f"To rule out a lucky seed, {seeds}."
        factor = _compute_factor(difference)
        if factor > MAX_TIMES:
            return f"To be certain, {seeds}."
        return f"To be certain, {seeds}, or evaluate on about {max(math.ceil(factor), 2)} times as many rows."
    if difference.is_certain:
        return ""
    # With k seeds on either side the variance has the factor 2 / k.
    num_seeds = 2 * _compute_factor(difference) / sum(1 / count for count in counts)
    if num_seeds > MAX_SEEDS:
        return f"The difference is so small that even {MAX_SEEDS} seeds each would hardly tell them apart."
    num_seeds = max(math.ceil(num_seeds), max(counts) + 1)
    return f"To be certain of a difference of this size, train each with about {num_seeds} seeds."


def _compute_factor(difference: ComparedDifference) -> float:
    """Compute by how much the variance must fall to make the interval as narrow as the difference is large.

    Half the width of an interval is proportional to the root of the variance. Infinite if there is no difference, or
    no interval.
    """
    if difference.mean == 0 or difference.low is None:
        return math.inf
    return ((difference.mean - difference.low) / difference.mean) ** 2


def _format(value: float) -> str:
    """Format the size of a difference with at least two significant digits."""
    size = abs(value)
    return f"{size:.4f}" if size >= 0.001 else f"{size:.2g}"


def _name(groups: Sequence[Group], number: int) -> str:
    """Name a group by its letter, and by the name of its jobs if no other group has it."""
    names = [group.members[0].job.name for group in groups]
    letter = ascii_uppercase[number]
    return f"{letter} ({names[number]})" if names.count(names[number]) == 1 else letter
