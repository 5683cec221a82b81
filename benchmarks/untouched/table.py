"""Table of the results as Markdown, and a sentence that sums them up."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.untouched.results import LIGHTGBM, LOGISTIC_REGRESSION, OURS, Results

BETTER_TOLERANCE = 0.002
"""AUC that ours may be below the better reference and still count as on a par with it."""
LINEAR_TOLERANCE = 0.003
"""AUC that ours may be below logistic regression and still count as not worse."""
HEAD = (
    *("set", "rows, train + test", "columns", "logistic regression", "LightGBM"),
    *("ours, mean", "range of seeds", "to the better", "seconds"),
)


@dataclass(frozen=True)
class Summary:
    """Results on one data set."""

    set_name: str
    num_train_rows: int
    num_test_rows: int
    num_columns: int
    linear: float | None
    """AUC of logistic regression; None if it is not measured."""
    trees: float | None
    """AUC of LightGBM; None if it is not measured."""
    ours: tuple[float, ...]
    """AUC of our model, by seed; may be empty."""
    seconds: float | None
    """Mean seconds of inferring a job and training it; None if it is not measured."""

    @property
    def mean(self) -> float | None:
        """Mean AUC of our model."""
        return statistics.mean(self.ours) if self.ours else None

    @property
    def difference(self) -> float | None:
        """Mean AUC of our model less the better reference's; None if one is missing."""
        references = [auc for auc in (self.linear, self.trees) if auc is not None]
        return self.mean - max(references) if self.mean is not None and references else None


def summarise(results: Results, set_name: str) -> Summary | None:
    """Sum up the results on one data set; return None if absent."""
    linear, trees, ours = (results.list_of(set_name, model) for model in (LOGISTIC_REGRESSION, LIGHTGBM, OURS))
    found = [*linear, *trees, *ours]
    if not found:
        return None
    return Summary(
        set_name=set_name,
        num_train_rows=found[0].num_train_rows,
        num_test_rows=found[0].num_test_rows,
        num_columns=found[0].num_columns,
        linear=linear[0].auc if linear else None,
        trees=trees[0].auc if trees else None,
        ours=tuple(result.auc for result in ours),
        seconds=statistics.mean(result.seconds for result in ours) if ours else None,
    )


def format_table(summaries: Sequence[Summary]) -> str:
    """Format a line for each data set, and what they come to."""
    lines = [HEAD, ("---",) * len(HEAD), *map(_format_cells, summaries)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([table, *_list_verdicts(summaries)])


def _format_cells(summary: Summary) -> tuple[str, ...]:
    ours = summary.ours
    return (
        summary.set_name,
        f"{summary.num_train_rows:,} + {summary.num_test_rows:,}",
        str(summary.num_columns),
        _format_auc(summary.linear),
        _format_auc(summary.trees),
        _format_auc(summary.mean),
        f"{min(ours):.4f} to {max(ours):.4f} of {len(ours)}" if ours else "",
        "" if summary.difference is None else f"{summary.difference:+.4f}",
        "" if summary.seconds is None else f"{summary.seconds:,.0f}",
    )


def _format_auc(auc: float | None) -> str:
    return "" if auc is None else f"{auc:.4f}"


def _list_verdicts(summaries: Sequence[Summary]) -> list[str]:
    """List the sentence that sums the table up; return an empty list if nothing is compared."""
    differences = [summary.difference for summary in summaries if summary.difference is not None]
    on_a_par = sum(difference >= -BETTER_TOLERANCE for difference in differences)
    below = [
        summary.set_name
        for summary in summaries
        if summary.mean is not None and summary.linear is not None and summary.mean < summary.linear - LINEAR_TOLERANCE
    ]
    sentence = (
        f"At or above the better reference less {BETTER_TOLERANCE}: {on_a_par} of {len(differences)} sets. "
        f"Below logistic regression less {LINEAR_TOLERANCE}: {', '.join(below) or 'none'}."
    )
    return [sentence] if differences else []
