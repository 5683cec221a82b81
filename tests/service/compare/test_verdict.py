"""Verdicts of comparisons: how often chance alone makes one certain, and how many seeds they advise."""

import math
import random
from collections.abc import Sequence

import pytest
from scipy import stats

from service.compare.groups import Candidate, Group
from service.compare.verdict import judge
from service.store.models import Job, JobDocument
from service.store.states import JobState

ROW_ERROR = 0.002


def make_groups(aucs: Sequence[Sequence[float]]) -> list[Group]:
    """Make a group for each list of AUCs, one for each seed from 0 on."""
    return [
        Group(
            settings={},
            members=[
                Candidate(
                    Job(name=f"method-{number}", state=JobState.SUCCEEDED),
                    JobDocument(spec={"run": {"seed": seed}}, metrics={"auc": auc, "auc_standard_error": ROW_ERROR}),
                    {},
                )
                for seed, auc in enumerate(own)
            ],
        )
        for number, own in enumerate(aucs)
    ]


@pytest.mark.parametrize(("num_methods", "num_seeds"), [(2, 5), (8, 5), (20, 1)])
def test_equal_methods_are_called_certain_in_at_most_five_percent(num_methods: int, num_seeds: int) -> None:
    chance = random.Random(3)
    num_certain, num_comparisons = 0, 1000
    groups = make_groups([[0.7] * num_seeds] * num_methods)
    for _ in range(num_comparisons):
        for group in groups:
            for member in group.members:
                member.document.metrics = {**member.document.metrics, "auc": chance.gauss(0.7, ROW_ERROR)}
        num_certain += judge(groups).is_certain is True
    # Three standard errors of a fraction of 5 %.
    assert num_certain / num_comparisons <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / num_comparisons)


def test_the_interval_holds_for_all_comparisons_with_the_best_at_once() -> None:
    aucs = [[0.70, 0.71, 0.72], [0.74, 0.76, 0.77], [0.69, 0.70, 0.73], [0.68, 0.70, 0.71]]
    verdict = judge(make_groups(aucs))
    differences = [one - other for one, other in zip(aucs[1], aucs[0], strict=True)]
    low, high = stats.t.interval(1 - 0.05 / 3, 2, loc=sum(differences) / 3, scale=stats.sem(differences))
    assert verdict.basis.startswith(f"The interval of the difference is {low:+.4f} to {high:+.4f}, from 3 pairs")
    assert verdict.basis.endswith(
        "The best of 4 may be so by luck, so the interval is widened: with 95 % certainty all 3 comparisons with the "
        "best one hold at once."
    )
    two = judge(make_groups(aucs[:2])).basis
    assert two.startswith("The 95 % interval of the difference is")
    assert "luck" not in two


def test_advised_seeds_give_both_sides_the_variance_that_makes_the_difference_certain() -> None:
    several = [0.7, 0.7016, 0.7008, 0.7004, 0.7012]
    mean, spread = sum(several) / 5, stats.tstd(several)

    def advise(single: float) -> str:
        return judge(make_groups([several, [single]])).advice

    half = stats.t.ppf(0.975, 4) * spread * math.sqrt(1 + 1 / 5)
    # With k seeds each, the variance 2 / k makes up for what the interval is too wide.
    few, many = mean + 0.9 * half, mean + 0.3 * half
    assert math.ceil(2 * (1 / 0.9) ** 2 / (1 + 1 / 5)) < 6
    assert advise(few).endswith("train each with about 6 seeds.")
    assert advise(many).endswith(f"train each with about {math.ceil(2 * (1 / 0.3) ** 2 / (1 + 1 / 5))} seeds.")
    assert "even 100 seeds" in advise(mean + 0.1 * half)
    paired = [[0.70, 0.71, 0.72], [0.702, 0.711, 0.7245]]
    differences = [one - other for one, other in zip(paired[1], paired[0], strict=True)]
    ratio = stats.t.ppf(0.975, 2) * stats.sem(differences) / (sum(differences) / 3)
    assert judge(make_groups(paired)).advice.endswith(f"train each with about {math.ceil(3 * ratio**2)} seeds.")
