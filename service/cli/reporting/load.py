"""Reading of the results of one sweep, which may lie in several directories."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from service.cli.errors import BadInputError
from service.cli.reporting.batches import TrialBatch, find_batch
from service.cli.sweep.asked import read_asked
from service.cli.sweep.results import FILE_NAME, TrialResult, read_results
from service.cli.sweep.trials import format_value


@dataclass(frozen=True)
class LoadedTrial:
    """Result of a trial, and the place of its scores."""

    result: TrialResult
    file: Path
    """File that has its line; the paths of its scores are relative to the directory of it."""

    @property
    def batch(self) -> TrialBatch:
        """Batch of the trial."""
        return find_batch(self.result)

    @property
    def label(self) -> str:
        """Words that tell the trial from the others."""
        result = self.result
        fields = {**result.compared, **result.settings}
        values = [f"{field} {format_value(value)}" for field, value in fields.items()]
        return ", ".join([result.method, *values, f"seed {result.seed}"])


@dataclass(frozen=True)
class LoadedResults:
    """Results of one sweep."""

    files: Sequence[Path]
    trials: Sequence[LoadedTrial]
    """Trials, each once, in the order of the files."""
    num_replaced: int
    """Lines that do not count since the same trial of an earlier document or attempt has a later one."""
    num_unasked: int
    """Lines that do not count since the document of the sweep does not ask for their trials, or not yet."""
    compare: Sequence[str]
    """Compared fields."""


def load_results(paths: Sequence[Path]) -> LoadedResults:
    """Load results. paths: files, or directories of sweeps. Raises BadInputError, also for files of two sweeps.

    Where a sweep has left the keys of the trials that its document asks for, the lines of other trials do not count.
    """
    files = list(dict.fromkeys(path / FILE_NAME if path.is_dir() else path for path in paths))
    all_lines = [LoadedTrial(result, file) for file in files for result in _read(file)]
    asked = {file: read_asked(file.parent) for file in files}
    lines = [line for line in all_lines if (keys := asked[line.file]) is None or line.result.key in keys]
    if not lines:
        raise BadInputError(
            f"{', '.join(map(str, files))}: no results that the document of the sweep asks for "
            "(valid: a sweep with a trial that has ended)"
        )
    compare = _check_compared(lines)
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
                f"({line.label}) (valid: results of one sweep)"
            )
        # A failure is no result, so that it does not replace one.
        if line.result.outcome != "failed" or earlier.result.outcome == "failed":
            trials[identity] = line
    return LoadedResults(files, [*trials.values()], len(lines) - len(trials), len(all_lines) - len(lines), compare)


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


def _list_fields(line: LoadedTrial) -> str:
    return ", ".join(line.result.compared) or "no fields"


def _make_identity(result: TrialResult) -> str:
    """Return what makes a trial within a sweep; its key tells the job document too."""
    fields = [result.method, result.stage, result.compared, result.settings, result.seed, result.fraction]
    return json.dumps(fields, sort_keys=True)
