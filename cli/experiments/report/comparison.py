"""Differences of methods to a base, seed by seed and on the same evaluation rows."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cli.experiments.report.cells import ReportCell, are_equal
from cli.experiments.report.load import LoadedTrial
from cli.experiments.report.scores import MeasuredScores
from cli.local.errors import BadInputError
from dlrm.record.intervals import Estimate, combine_differences

MIN_WIDTH = 1e-9
"""Width of an interval below which it is no more than rounding."""


@dataclass(frozen=True)
class Comparison:
    """One cell beside its base."""

    cell: ReportCell
    base: ReportCell
    pairs: Sequence[tuple[LoadedTrial, LoadedTrial]]
    """Trials of the cell and of the base with the same seed; empty if they are not compared."""
    row_refusal: str | None
    """Reason why the pairs are not paired by rows too; None if all scores can be used."""
    refusal: str | None
    """Reason why there is no difference; None if there is one."""
    inequality: str | None
    """Words for unequal numbers of samples, which make a comparison of methods unfair; None if they are equal."""

    @property
    def is_on_rows(self) -> bool:
        """Whether the difference is paired by evaluation rows too."""
        return bool(self.pairs) and self.row_refusal is None


@dataclass(frozen=True)
class Difference:
    """Metrics of a cell less the metrics of its base."""

    comparison: Comparison
    auc: Estimate | None
    log_loss: Estimate | None

    @property
    def verdict(self) -> str:
        """Words for the meaning of the intervals."""
        if self.comparison.refusal is not None:
            return self.comparison.refusal
        if len(self.comparison.pairs) < 2:
            return "no verdict: one training each"
        verdicts = [
            _describe(self.auc, "higher AUC", "lower AUC"),
            _describe(self.log_loss, "higher log-loss", "lower log-loss"),
        ]
        words = ", ".join(word for word in verdicts if word)
        if not words:
            return "not told apart"
        return words if self.comparison.is_on_rows else f"{words} on these rows"


def choose_bases(
    cells: Sequence[ReportCell], bases: Sequence[str], base_cell: str | None
) -> list[tuple[ReportCell, ReportCell]]:
    """Return each cell that is compared with a base, and the base.

    A base is the cell of a method of `bases` at the same compared values, or the one cell of the method with the
    compared values `base_cell`, such as "4096". Without both there is none. Raises BadInputError, with the valid names,
    for a name that the results do not have.
    """
    if not bases and base_cell is None:
        return []
    methods = list(dict.fromkeys(cell.method for cell in cells))
    if not bases and len(methods) > 1:
        raise BadInputError(f"--base-cell: needs --base, the method of the cell (valid: {', '.join(methods)})")
    return [
        pair for base in dict.fromkeys(bases or methods) for pair in _pair_with_base(cells, base, base_cell, methods)
    ]


def _pair_with_base(
    cells: Sequence[ReportCell], base: str, base_cell: str | None, methods: Sequence[str]
) -> list[tuple[ReportCell, ReportCell]]:
    """Return each cell that is compared with the method `base`, and its base, as `choose_bases` does."""
    of_base = [cell for cell in cells if cell.method == base]
    if not of_base:
        raise BadInputError(f"--base: no method {base!r} in the results (valid: {', '.join(methods)})")
    if base_cell is None:
        return [
            (cell, other)
            for cell in cells
            for other in of_base
            if cell is not other and cell.compared == other.compared
        ]
    by_name = {name_compared(cell): cell for cell in of_base}
    chosen = by_name.get("".join(base_cell.split()))
    if chosen is None:
        valid = ", ".join(f'"{name}"' for name in by_name if name) or "leave it out: the sweep compares no values"
        raise BadInputError(f"--base-cell: {base} has no results at {base_cell!r} (valid: {valid})")
    return [(cell, chosen) for cell in cells if cell is not chosen]


def name_compared(cell: ReportCell) -> str:
    """Return the compared values as --base-cell names them, such as "4096,[64,1]": in full, without spaces."""
    values = cell.compared.values()
    return "".join(",".join(value if isinstance(value, str) else json.dumps(value) for value in values).split())


def plan_comparison(cell: ReportCell, base: ReportCell, missing: Mapping[str, str]) -> Comparison:
    """Find the pairs of trials of two cells, and refuse to pair trials with other evaluation rows.

    missing: reasons why the scores of a trial are not there, by its key.
    """
    of_base = {trial.result.seed: trial for trial in base.trials}
    pairs = [(trial, of_base[trial.result.seed]) for trial in cell.trials if trial.result.seed in of_base]
    inequality = _describe_inequality(cell, base)
    refusal = _find_refusal(cell, base, pairs)
    if refusal is not None:
        return Comparison(cell, base, [], row_refusal=refusal, refusal=refusal, inequality=inequality)
    row_refusal = _find_first(pairs, missing)
    return Comparison(cell, base, pairs, row_refusal=row_refusal, refusal=None, inequality=inequality)


def compute_difference(comparison: Comparison, measured: MeasuredScores) -> Difference:
    """Compute the difference over the seeds of a comparison, with row by row errors if scores can be used."""
    if (fault := _find_first(comparison.pairs, measured.faults)) is not None:
        comparison = dataclasses.replace(comparison, row_refusal=fault)
    return Difference(comparison, _combine(comparison, measured, "auc"), _combine(comparison, measured, "log_loss"))


def _find_first(pairs: Sequence[tuple[LoadedTrial, LoadedTrial]], reasons: Mapping[str, str]) -> str | None:
    """Return the reason of the first trial of some pairs that has one; None if none has."""
    keys = (trial.result.key for pair in pairs for trial in pair)
    return next((reasons[key] for key in keys if key in reasons), None)


def _find_refusal(cell: ReportCell, base: ReportCell, pairs: Sequence[tuple[LoadedTrial, LoadedTrial]]) -> str | None:
    if not cell.trials or not base.trials:
        return "no result" if base.trials else "the base has no result"
    if not pairs:
        return "not paired: no seed in common"
    for first, second in pairs:
        one, other = first.result, second.result
        if one.scores is not None and other.scores is not None and one.scores.checksum != other.scores.checksum:
            return "not paired: other evaluation rows (the checksums of labels and weights differ)"
        counts = one.metrics.get("num_rows"), other.metrics.get("num_rows")
        if None not in counts and counts[0] != counts[1]:
            return f"not paired: other evaluation rows ({counts[0]:,.0f} and {counts[1]:,.0f})"
    return None


def _describe_inequality(cell: ReportCell, base: ReportCell) -> str | None:
    samples, others = cell.compute_mean("num_samples"), base.compute_mean("num_samples")
    if samples is None or others is None or are_equal(samples, others):
        return None
    steps, other_steps = cell.compute_mean("num_steps"), base.compute_mean("num_steps")
    has_equal_steps = steps is not None and other_steps is not None and are_equal(steps, other_steps)
    kind = "equal steps, unequal samples" if has_equal_steps else "unequal samples"
    return f"{kind}: {samples:,.0f} against {others:,.0f}"


def _combine(comparison: Comparison, measured: MeasuredScores, metric: str) -> Estimate | None:
    differences: list[float] = []
    errors: list[float] = []
    for first, second in comparison.pairs:
        one, other = first.result.metrics.get(metric), second.result.metrics.get(metric)
        if one is None or other is None:
            return None
        differences.append(one - other)
        paired = measured.pairs.get((first.result.key, second.result.key))
        error = None if paired is None else getattr(paired, f"{metric}_standard_error")
        if error is not None:
            errors.append(error)
    if not differences:
        return None
    return combine_differences(differences, errors if len(errors) == len(differences) else None)


def _describe(estimate: Estimate | None, above: str, below: str) -> str | None:
    if estimate is None or estimate.low is None or estimate.high is None:
        return None
    # Seeds that differ alike, as they may on few rows, tell nothing of how much others would.
    if estimate.high - estimate.low < MIN_WIDTH:
        return None
    return above if estimate.low > 0.0 else below if estimate.high < 0.0 else None
