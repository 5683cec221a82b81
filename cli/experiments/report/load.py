"""Reading of the results of one sweep, which may lie in several directories."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cli.experiments.report.batches import TrialBatch, find_batch
from cli.experiments.trials.results import (
    FILE_NAME,
    TrialNames,
    TrialResult,
    index_results,
    read_asked,
    read_results,
)
from cli.local.errors import BadInputError


@dataclass(frozen=True)
class LoadedTrial:
    """Result of a trial, and the place of its scores."""

    result: TrialResult
    file: Path
    """File with its line; the paths of its scores are relative to the directory of that file."""

    @property
    def batch(self) -> TrialBatch:
        """Batch of the trial."""
        return find_batch(self.result)


@dataclass(frozen=True)
class LoadedResults:
    """Results of one sweep."""

    files: Sequence[Path]
    trials: Sequence[LoadedTrial]
    """Trials, each once, in the order of the files."""
    missing: Sequence[TrialNames]
    """Trials that the document of the sweep asks for and that have no line."""
    num_replaced: int
    """Lines that do not count since the same trial of an earlier document or attempt has a later one."""
    num_unasked: int
    """Lines that do not count since the document of the sweep does not ask for their trials, or not yet."""
    compare: Sequence[str]
    """Compared fields."""
    unlisted: Sequence[Path]
    """Files without a list of the trials that the sweep asks for: what is left of it is not known."""


def load_results(paths: Sequence[Path]) -> LoadedResults:
    """Load results. paths: files, or directories of sweeps. Raises BadInputError, also for files of two sweeps.

    If a sweep has left a list of the trials that its document asks for, other lines do not count, and these trials have
    the names from the document.
    """
    files = list(dict.fromkeys(path / FILE_NAME if path.is_dir() else path for path in paths))
    results, asked = [_read(file) for file in files], [read_asked(file.parent) for file in files]
    parts = [_select_asked(*of_file) for of_file in zip(files, results, asked, strict=True)]
    lines = [trial for selected, _, _ in parts for trial in selected]
    if not lines:
        raise BadInputError(
            f"{', '.join(map(str, files))}: no results that the document of the sweep asks for "
            "(valid: a sweep with a trial that has ended)"
        )
    compare = _check_compared(lines)
    lines = [_order_compared(line, compare) for line in lines]
    trials: dict[str, LoadedTrial] = {}
    for line in lines:
        identity = _make_identity(line.result)
        earlier = trials.get(identity)
        if earlier is None:
            trials[identity] = line
            continue
        if earlier.result.key != line.result.key and earlier.file != line.file:
            raise BadInputError(
                f"{line.file}: of another sweep than {earlier.file}: their job documents for the same trial differ "
                f"({line.result.label}) (valid: results of one sweep)"
            )
        # A failure is no result, so that it does not replace one.
        if line.result.outcome != "failed" or earlier.result.outcome == "failed":
            trials[identity] = line
    missing = {_make_identity(trial): trial for trials_of_file in asked for trial in trials_of_file or []}
    return LoadedResults(
        files,
        [*trials.values()],
        [trial for identity, trial in missing.items() if identity not in trials],
        sum(num_replaced for _, num_replaced, _ in parts) + len(lines) - len(trials),
        sum(num_unasked for _, _, num_unasked in parts),
        compare,
        [file for file, trials_of_file in zip(files, asked, strict=True) if trials_of_file is None],
    )


def _select_asked(
    file: Path, results: Sequence[TrialResult], asked: Sequence[TrialNames] | None
) -> tuple[list[LoadedTrial], int, int]:
    """Select the results of a file that count, with the numbers of replaced lines and of unasked ones.

    asked: trials that count; None if all do.
    """
    if asked is None:
        return [LoadedTrial(result, file) for result in results], 0, 0
    keys = {trial.key for trial in asked}
    lines = [result for result in results if result.key in keys]
    # A failure is no result, so that it does not replace one.
    by_key = {result.key: result for result in lines} | index_results(lines)
    trials = [
        LoadedTrial(by_key[trial.key].model_copy(update=trial.list_names()), file)
        for trial in asked
        if trial.key in by_key
    ]
    return trials, len(lines) - len(by_key), len(results) - len(lines)


def _read(file: Path) -> list[TrialResult]:
    valid = f"valid: the directory of a sweep, or its {FILE_NAME}"
    if not file.exists():
        raise BadInputError(f"{file}: no such file ({valid})")
    results = read_results(file)
    if not results:
        raise BadInputError(f"{file}: no results: no trial has ended ({valid} with a trial in it)")
    return results


def _check_compared(lines: Sequence[LoadedTrial]) -> list[str]:
    """Return the compared fields, in which all lines must agree."""
    first = lines[0]
    for line in lines:
        if set(line.result.compared) != set(first.result.compared):
            raise BadInputError(
                f"{line.file}: of another sweep than {first.file}, or of another document of it: compares "
                f"{_list_fields(line)}, not {_list_fields(first)} (valid: results of one sweep)"
            )
    return [*first.result.compared]


def _order_compared(line: LoadedTrial, compare: Sequence[str]) -> LoadedTrial:
    """Return the trial with its compared values in the order of `compare`, which a document may have changed."""
    compared = {field: line.result.compared[field] for field in compare}
    return replace(line, result=line.result.model_copy(update={"compared": compared}))


def _list_fields(line: LoadedTrial) -> str:
    return ", ".join(line.result.compared) or "no fields"


def _make_identity(trial: TrialNames) -> str:
    """Return what makes a trial within a sweep; its key depends on the job document too."""
    return json.dumps(trial.list_names(), sort_keys=True)
