"""One run on one rank: open the data, train, write the model."""

from pathlib import Path

from dlrm.checkpoint.label import Label
from dlrm.config import ResolvedJob
from dlrm.data.open import open_data
from dlrm.exported_model.export import export_model
from dlrm.gradient_stats.batch_advice import largest_useful_batch, settled_noise
from dlrm.record import EndReason, EvaluationReport, Outcome, PreparedData, ProfileDirectory, RunDirectory
from dlrm.reporting.reporter import Reporter
from dlrm.stop import StopRequest
from dlrm.train.progress import Progress
from dlrm.train.trainer import Trained, train
from sharding.comm.process_groups import Ranks


def run(
    resolved: ResolvedJob,
    directory: RunDirectory,
    profile: ProfileDirectory,
    ranks: Ranks,
    reporter: Reporter,
    stop: StopRequest,
) -> Outcome:
    """Train the job to its end, or to a stop; leave a checkpoint and, at the end, a model.

    Goes on from the newest sound checkpoint in `directory`, where there is one. Collective; the outcome is rank 0's to
    write. Raises DataError, DivergedError, CheckpointError.
    """
    reporter.progress("loading", "reading the data")
    prepared = PreparedData.read(directory.data)
    dataset = open_data(resolved.job.data, resolved.data_roots, prepared and Path(prepared.directory))
    label = Label.of(resolved, prepared and prepared.checksum)
    trained = train(resolved, directory, profile, dataset, label, ranks, reporter, stop)
    metrics = _final_metrics(trained.progress)
    step = trained.progress.step
    if trained.reason is EndReason.STOP_REQUESTED:
        return Outcome(
            state="stopped", reason=trained.reason, message=_where_it_stopped(trained), step=step, metrics=metrics
        )
    assert trained.checkpoint is not None, "a run that is over has made a step"
    if ranks.rank == 0:
        reporter.progress("saving", "writing the model")
        export_model(trained.checkpoint, directory.model, resolved, dataset, metrics)
    return Outcome(state="succeeded", reason=trained.reason, step=step, metrics=metrics)


def _where_it_stopped(trained: Trained) -> str:
    if trained.checkpoint is None:
        return "stopped before the first step"
    progress = trained.progress
    return f"stopped after step {progress.step} of {progress.num_steps}; checkpoint: {trained.checkpoint}"


def _final_metrics(progress: Progress) -> dict[str, float | None]:
    noise = settled_noise(progress)
    metrics: dict[str, float | None] = {
        "num_samples": progress.num_samples,
        "samples_per_second": progress.num_samples / max(progress.training_seconds, 1e-9),
        "noise_scale": None if noise is None else noise.value,
        "largest_useful_batch": None if noise is None else largest_useful_batch(noise.value),
    }
    report: EvaluationReport | None = progress.last_evaluation
    if report is not None:
        metrics |= report.model_dump(exclude={"kind", "seq", "time", "step", "seconds"})
    return metrics
