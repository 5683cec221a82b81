"""The tuning of a job: its trials, one after another, and the choice of the best."""

import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.experiments.search.halving import Rung, choose_survivors, estimate_rest, list_rungs
from cli.experiments.search.records import UNTUNED, TrialRecord, TuningDirectory
from cli.experiments.search.space import draw_settings, list_parameters
from cli.experiments.trials.fields import VALIDATION_FRACTION, Settings, fix_end, get_field
from cli.experiments.trials.run import ExperimentStopped, read_data_checksum, run_trial
from cli.local.errors import BadInputError, CommandError
from cli.local.run_documents import read_resolved_job
from dlrm.config import JobConfig, parse_job
from dlrm.record import EndReason, RunDirectory

WHOLE = Rung(0, 1.0)
"""Rung of the untuned job, before the number of rungs is known by its steps."""


@dataclass(frozen=True)
class Search:
    """Wishes of the user for a tuning."""

    num_trials: int
    """Largest number of trials beside the untuned job."""
    seconds: float
    """Seconds for all runs together, by earlier commands too."""
    seed: int
    """Seed of the settings of the trials."""
    is_all: bool
    """Whether fields that the document states are tuned too."""
    keeps_runs: bool
    """Whether the run directories of all trials are kept."""


@dataclass(frozen=True)
class Tuning:
    """Result of a tuning."""

    best: TrialRecord
    """Best run of the whole length, by the log-loss on the validation rows; the untuned job if no trial was better."""
    untuned: TrialRecord
    finals: Sequence[TrialRecord]
    """Runs of the whole length, best first; failed ones last."""
    num_trials: int
    """Number of trials that were run, the untuned job not counted."""
    seconds: float
    """Seconds of all runs together."""
    seconds_needed: float
    """Estimated seconds of all runs together with a single trial."""

    @property
    def is_better(self) -> bool:
        """Whether a trial was better than the untuned job."""
        return self.best.trial != UNTUNED

    @property
    def is_untuned_enough(self) -> bool:
        """Whether the untuned job is as good as the best trial, within the standard error of the AUC."""
        best, untuned = self.best, self.untuned
        if not self.is_better or best.auc is None or untuned.auc is None:
            return not self.is_better
        return best.auc - untuned.auc <= max(best.auc_standard_error or 0.0, untuned.auc_standard_error or 0.0)


class Tuner:
    """Tuner of one job. The record has what earlier commands have finished."""

    def __init__(
        self,
        document: Mapping[str, Any],
        directory: TuningDirectory,
        search: Search,
        on_record: Callable[[TrialRecord], None],
    ) -> None:
        """Open a tuning. document: job document with absolute paths. on_record: called with each run that ends."""
        directory.open(document, {"seed": search.seed, "all": search.is_all})
        self._document = document
        self._directory = directory
        self._search = search
        self._fixed: dict[str, Any] = {"run.yardsticks": "none", **fix_end(document)}
        """Settings of all runs: no other models beside it, and no end that evaluation rows decide."""
        self._on_record = on_record
        self._rungs: list[Rung] = []
        self._records = directory.read_records()
        self._to_retry = {(record.trial, record.fraction) for record in self._records if record.is_retryable}
        """Runs of earlier commands that failed and are tried again, if there is time for it."""
        self._is_stop_requested = False

    def tune(self) -> Tuning:
        """Run the trials. Raises ExperimentStopped, BadInputError, and CommandError if the untuned job fails."""
        untuned = self._run_untuned()
        job = self._read_untuned_job()
        self._rungs = list_rungs(self._search.num_trials, untuned.num_steps or 0)
        parameters = list_parameters(self._document, job, is_all=self._search.is_all)
        draws = {
            trial: draw_settings(parameters, self._document, job, self._search.seed, trial)
            for trial in range(1, self._search.num_trials + 1)
        }
        untuned = self._record_settings(untuned, {field: get_field(job.model_dump(), field) for field in draws[1]})
        candidates = list(draws)
        num_trials = 0
        for rung in self._rungs:
            records = self._run_rung(rung, {trial: draws[trial] for trial in candidates}, job)
            num_trials = num_trials or len(records)
            losses = {
                record.trial: record.validation_log_loss for record in records if record.validation_log_loss is not None
            }
            if rung != self._rungs[-1]:
                candidates = choose_survivors(losses, len(records))
                self._delete_runs(records)
        return self._conclude(untuned, num_trials)

    def _run_untuned(self) -> TrialRecord:
        """Train the job as it is, for its whole length: what is decided by its rows is the middle of the space."""
        spec = parse_job(self._document)
        settings = {**self._fixed}
        # Where the document leaves the epochs open, a share of the rows is held out anyway.
        is_held_out = spec.run.validation_fraction or 0.0
        if is_held_out == 0.0 or (is_held_out == "auto" and spec.run.epochs != "auto"):
            settings["run.validation_fraction"] = VALIDATION_FRACTION
            # A run of the document itself is not blended, as it has no validation rows to choose a blend by.
            settings["run.blend"] = "none"
        directory = self._directory.run(UNTUNED, 1.0)
        if not directory.spec.exists():
            # Deleted by the user: it is needed for what was decided.
            self._records = [record for record in self._records if record.trial != UNTUNED]
        record = self._run(UNTUNED, WHOLE, {}, settings)
        if record.state != "succeeded":
            error = f"the untuned job failed ({record.reason}): {record.message}"
            raise BadInputError(error) if record.reason is EndReason.BAD_INPUT else CommandError(error)
        if record.validation_log_loss is None:
            raise BadInputError("the training rows are too few to hold validation rows out (valid: more rows)")
        return record

    def _record_settings(self, untuned: TrialRecord, settings: Settings) -> TrialRecord:
        """Add to the record of the untuned job what its run has decided: its rung, its settings. Return the record."""
        untuned = untuned.model_copy(update={"rung": self._rungs[-1].number, "settings": dict(settings)})
        self._records = [untuned if record.trial == UNTUNED else record for record in self._records]
        self._directory.write_records(self._records)
        return untuned

    def _read_untuned_job(self) -> JobConfig:
        directory = self._directory.run(UNTUNED, 1.0)
        return read_resolved_job(directory, directory.path).job

    def _run_rung(self, rung: Rung, draws: Mapping[int, Settings], job: JobConfig) -> list[TrialRecord]:
        """Run the trials of a rung, as many as there is time for; after the first rung one in any case, to compare."""
        fixed = {
            **self._fixed,
            "run.epochs": float(f"{job.run.epochs * rung.fraction:.6g}"),
            "run.validation_fraction": job.run.validation_fraction,
            "run.blend": job.run.blend,
            **({} if job.run.patience is None else {"run.patience": job.run.patience}),
        }
        records: list[TrialRecord] = []
        for trial, settings in draws.items():
            known, has_time = self._find_record(trial, rung), self._has_time(len(records), rung)
            if known is not None and not (has_time and self._is_to_retry(known)):
                records.append(known)
            elif has_time or (rung.number > 0 and not records):
                records.append(self._run(trial, rung, settings, fixed))
            else:
                break
        return records

    def _is_to_retry(self, record: TrialRecord) -> bool:
        return (record.trial, record.fraction) in self._to_retry

    def _has_time(self, num_run: int, rung: Rung) -> bool:
        """Whether there is time for one more trial of the rung, and for what then goes on to the next ones."""
        rest = estimate_rest(num_run, rung, self._rungs, self._list_seconds())
        return self._count_seconds() + rest <= self._search.seconds

    def _list_seconds(self) -> Mapping[float, list[float]]:
        seconds: defaultdict[float, list[float]] = defaultdict(list)
        for record in self._records:
            seconds[record.fraction].append(record.seconds)
        return seconds

    def _count_seconds(self) -> float:
        return sum(record.seconds for record in self._records)

    def _find_record(self, trial: int, rung: Rung) -> TrialRecord | None:
        return next((done for done in self._records if (done.trial, done.fraction) == (trial, rung.fraction)), None)

    def _run(self, trial: int, rung: Rung, settings: Settings, fixed: Settings) -> TrialRecord:
        """Run a trial and record it, unless it is recorded already. Raises ExperimentStopped."""
        known = self._find_record(trial, rung)
        if known is not None and not self._is_to_retry(known):
            return known
        label = "untuned" if trial == UNTUNED else f"trial {trial}"
        directory = self._directory.run(trial, rung.fraction)
        if self._is_stop_requested:
            raise ExperimentStopped
        end = run_trial(self._directory.document, directory, {**fixed, **settings}, label, is_first=trial == UNTUNED)
        outcome = end.outcome
        self._is_stop_requested = end.is_stop_requested
        data_checksum = self._check_rows(directory)
        metrics = outcome.metrics if outcome.state == "succeeded" else {}
        record = TrialRecord(
            trial=trial,
            rung=rung.number,
            fraction=rung.fraction,
            settings=dict(settings),
            state=outcome.state,
            reason=outcome.reason,
            message=outcome.message,
            **{name: metrics.get(name) for name in ("validation_log_loss", "auc", "auc_standard_error", "log_loss")},
            data_checksum=data_checksum,
            num_steps=outcome.step,
            # The seconds of a run that failed before count too.
            seconds=round(end.seconds + (0.0 if known is None else known.seconds), 3),
        )
        if known is not None:
            self._records.remove(known)
            self._to_retry.remove((trial, rung.fraction))
        self._records.append(record)
        self._directory.write_records(self._records)
        self._on_record(record)
        return record

    def _check_rows(self, directory: RunDirectory) -> str | None:
        """Return the checksum of the rows of a run; None if it has none.

        Raises BadInputError if the untuned job had other rows, so that their log-losses cannot be compared.
        """
        checksum = read_data_checksum(directory)
        untuned = self._find_record(UNTUNED, WHOLE)
        known = None if untuned is None else untuned.data_checksum
        if None not in (checksum, known) and checksum != known:
            # With the files as they were it is trained again.
            shutil.rmtree(directory.path, ignore_errors=True)
            raise BadInputError(
                "data.train: the files have changed since the untuned job was trained (valid: another --output, or the "
                "files as they were)"
            )
        return checksum

    def _conclude(self, untuned: TrialRecord, num_trials: int) -> Tuning:
        finals = [record for record in self._records if record.fraction == 1.0]
        finals.sort(key=_get_sort_key)
        best = finals[0]
        self._delete_runs([record for record in finals if record.trial not in (best.trial, UNTUNED)])
        needed = untuned.seconds + estimate_rest(0, self._rungs[0], self._rungs, self._list_seconds())
        return Tuning(best, untuned, finals, num_trials, self._count_seconds(), needed)

    def _delete_runs(self, records: Sequence[TrialRecord]) -> None:
        if not self._search.keeps_runs:
            for record in records:
                shutil.rmtree(self._directory.run(record.trial, record.fraction).path, ignore_errors=True)


def _get_sort_key(record: TrialRecord) -> tuple[bool, float, int]:
    loss = record.validation_log_loss
    return loss is None, loss or 0.0, record.trial
