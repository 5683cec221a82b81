"""The tuning of a job: the next trials, rung by rung, and the choice of the best."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.experiments.search.halving import Rung, choose_survivors, estimate_rest, list_rungs
from cli.experiments.search.records import UNTUNED, TrialRecord, TuningDirectory, name_run
from cli.experiments.search.space import draw_settings, list_parameters
from cli.experiments.trials.fields import VALIDATION_FRACTION, Settings, fix_end, get_field, parse_trial, set_fields
from cli.experiments.trials.results import TrialResult, append_line, read_lines
from cli.experiments.trials.runner import Runner, Trial
from cli.local.errors import BadInputError, CommandError
from cli.local.run_documents import read_resolved_job
from dlrm.config import JobConfig, parse_job
from dlrm.record import EndReason

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
    """Tuner of one job: it says which trials come next. The record has what earlier commands have finished."""

    def __init__(
        self,
        document: Mapping[str, Any],
        directory: TuningDirectory,
        search: Search,
        runner: Runner,
        on_record: Callable[[TrialRecord], None],
    ) -> None:
        """Open a tuning. document: job document with absolute paths. on_record: called with each run that ends."""
        directory.open(document, {"seed": search.seed, "all": search.is_all})
        self._document = document
        self._directory = directory
        self._search = search
        self._runner = runner
        self._fixed: dict[str, Any] = {"run.yardsticks": "none", **fix_end(document)}
        """Settings of all runs: no other models beside it, and no end that evaluation rows decide."""
        self._on_record = on_record
        self._rungs: list[Rung] = []
        self._draws: dict[int, dict[str, Any]] = {}
        """Settings by number of the trial."""
        self._records = {record.key: record for record in read_lines(directory.trials, TrialRecord, "a trial")}
        self._to_retry = {key for key, record in self._records.items() if record.is_retryable}
        """Runs of earlier commands that failed and are tried again, if there is time for it."""

    def tune(self) -> Tuning:
        """Run the trials. Raises ExperimentStopped, BadInputError, and CommandError if the untuned job fails."""
        untuned, job = self._run_untuned(), self._read_untuned_job()
        candidates, num_trials = [*self._draws], 0
        for rung in self._rungs:
            records = self._run_rung(rung, candidates, job)
            num_trials = num_trials or len(records)
            losses = {
                record.trial: record.validation_log_loss for record in records if record.validation_log_loss is not None
            }
            if rung != self._rungs[-1]:
                candidates = choose_survivors(losses, len(records))
                self._runner.finish(record.key for record in records)
        return self._conclude(untuned, num_trials)

    def _run_untuned(self) -> TrialRecord:
        """Train the job as it is, for its whole length: what is decided by its rows is the middle of the space."""
        key = name_run(UNTUNED, 1.0)
        if not self._directory.run(key).spec.exists():
            # Deleted by the user: it is needed for what was decided.
            self._records.pop(key, None)
        if key in self._records and key not in self._to_retry:
            # More trials than before may have more rungs.
            record = self._records[key] = self._prepare_rungs(self._records[key])
        else:
            record = self._prepare_rungs(self._run(UNTUNED, WHOLE, {}, self._fix_untuned()))
            self._keep(record)
        if record.state != "succeeded":
            error = f"the untuned job failed ({record.reason}): {record.message}"
            raise BadInputError(error) if record.reason is EndReason.BAD_INPUT else CommandError(error)
        if record.validation_log_loss is None:
            raise BadInputError("the training rows are too few to hold validation rows out (valid: more rows)")
        return record

    def _fix_untuned(self) -> Settings:
        """Return what is set for the untuned job, so that it has validation rows."""
        spec = parse_job(self._document)
        # If the document leaves the epochs open, a share of the rows is held out anyway.
        is_held_out = spec.run.validation_fraction or 0.0
        if is_held_out == 0.0 or (is_held_out == "auto" and spec.run.epochs != "auto"):
            # A run of the document itself is not blended, as it has no validation rows to choose a blend by.
            return {**self._fixed, "run.validation_fraction": VALIDATION_FRACTION, "run.blend": "none"}
        return self._fixed

    def _prepare_rungs(self, untuned: TrialRecord) -> TrialRecord:
        """Draw the settings of the trials around the values of the untuned job.

        Return its record with its rung and its settings; unchanged if it has failed.
        """
        if untuned.state != "succeeded":
            return untuned
        job, seed = self._read_untuned_job(), self._search.seed
        self._rungs = list_rungs(self._search.num_trials, untuned.num_steps or 0)
        parameters = list_parameters(self._document, job, is_all=self._search.is_all)
        numbers = range(1, self._search.num_trials + 1)
        self._draws = {number: draw_settings(parameters, self._document, job, seed, number) for number in numbers}
        settings = {field: get_field(job.model_dump(), field) for field in self._draws[1]}
        return untuned.model_copy(update={"rung": self._rungs[-1].number, "settings": settings})

    def _read_untuned_job(self) -> JobConfig:
        directory = self._directory.run(name_run(UNTUNED, 1.0))
        return read_resolved_job(directory, directory.path).job

    def _run_rung(self, rung: Rung, candidates: Sequence[int], job: JobConfig) -> list[TrialRecord]:
        """Run the trials of a rung, as many as there is time for; after the first rung one in any case, to compare."""
        fixed = {
            **self._fixed,
            "run.epochs": float(f"{job.run.epochs * rung.fraction:.6g}"),
            "run.validation_fraction": job.run.validation_fraction,
            "run.blend": job.run.blend,
            **({} if job.run.patience is None else {"run.patience": job.run.patience}),
        }
        records: list[TrialRecord] = []
        for trial in candidates:
            key = name_run(trial, rung.fraction)
            known, has_time = self._records.get(key), self._has_time(len(records), rung)
            if known is not None and not (has_time and key in self._to_retry):
                records.append(known)
            elif has_time or (rung.number > 0 and not records):
                records.append(self._keep(self._run(trial, rung, self._draws[trial], fixed)))
            else:
                break
        return records

    def _has_time(self, num_run: int, rung: Rung) -> bool:
        """Whether there is time for one more trial of the rung, and for what then goes on to the next ones."""
        rest = estimate_rest(num_run, rung, self._rungs, self._list_seconds())
        return self._count_seconds() + rest <= self._search.seconds

    def _list_seconds(self) -> Mapping[float, Sequence[float]]:
        """List the seconds of runs by their share of the epochs."""
        runs = self._records.values()
        return {
            share: [run.seconds for run in runs if run.fraction == share] for share in {run.fraction for run in runs}
        }

    def _count_seconds(self) -> float:
        return sum(record.seconds for record in self._records.values())

    def _run(self, number: int, rung: Rung, settings: Settings, fixed: Settings) -> TrialRecord:
        """Run a trial and make its record. Raises ExperimentStopped."""
        trial = self._make_trial(number, rung, settings, fixed)
        self._runner.start(trial, "")
        ((_, result),) = self._runner.wait()
        self._check_rows(trial.key, result)
        known, is_done = self._records.get(trial.key), result.outcome == "done"
        metrics = result.metrics if is_done else {}
        return TrialRecord(
            trial=number,
            rung=rung.number,
            fraction=rung.fraction,
            settings=dict(settings),
            state="succeeded" if is_done else "failed",
            reason=EndReason(result.reason),
            message=result.message,
            **{name: metrics.get(name) for name in ("validation_log_loss", "auc", "auc_standard_error", "log_loss")},
            data_checksum=result.data_checksum,
            num_steps=result.num_steps,
            # The seconds of a run that failed before count too.
            seconds=round(result.seconds + (0.0 if known is None else known.seconds), 3),
        )

    def _make_trial(self, number: int, rung: Rung, settings: Settings, fixed: Settings) -> Trial:
        document = set_fields(self._document, {**fixed, **settings})
        spec = parse_trial(document)
        return Trial(
            key=name_run(number, rung.fraction),
            stage="grid" if rung.fraction == 1.0 else "rung",
            method="untuned" if number == UNTUNED else f"trial {number}",
            settings=dict(settings),
            compared={},
            seed=spec.run.seed,
            fraction=rung.fraction,
            document=document,
            spec=spec,
        )

    def _keep(self, record: TrialRecord) -> TrialRecord:
        """Append a record to the file, and return it."""
        append_line(self._directory.trials, record)
        self._to_retry.discard(record.key)
        self._records[record.key] = record
        self._on_record(record)
        return record

    def _check_rows(self, key: str, result: TrialResult) -> None:
        """Check that a run had the rows of the untuned job: only then can their log-losses be compared.

        Raises BadInputError.
        """
        untuned = self._records.get(name_run(UNTUNED, 1.0))
        checksums = result.data_checksum, untuned and untuned.data_checksum
        if None not in checksums and checksums[0] != checksums[1]:
            # With the files as they were it is trained again.
            shutil.rmtree(self._directory.run(key).path, ignore_errors=True)
            raise BadInputError(
                "data.train: the files have changed since the untuned job was trained (valid: another --output, or the "
                "files as they were)"
            )

    def _conclude(self, untuned: TrialRecord, num_trials: int) -> Tuning:
        finals = [record for record in self._records.values() if record.fraction == 1.0]
        finals.sort(key=_get_sort_key)
        best = finals[0]
        self._runner.finish(record.key for record in finals if record.trial not in (best.trial, UNTUNED))
        needed = untuned.seconds + estimate_rest(0, self._rungs[0], self._rungs, self._list_seconds())
        return Tuning(best, untuned, finals, num_trials, self._count_seconds(), needed)


def _get_sort_key(record: TrialRecord) -> tuple[bool, float, int]:
    loss = record.validation_log_loss
    return loss is None, loss or 0.0, record.trial
