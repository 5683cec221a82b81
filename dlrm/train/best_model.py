"""Chooses the model that a run leaves: that of its best evaluation, or the last one."""

from dataclasses import dataclass
from pathlib import Path

from dlrm.checkpoint.progress import Progress
from dlrm.record import BEST_MODEL, CheckpointFaultError, EvaluationReport, find_checkpoint
from dlrm.train.context import RunContext


@dataclass(frozen=True)
class ChosenModel:
    """A checkpoint of the run, and its evaluation."""

    checkpoint: Path
    evaluation: EvaluationReport | None
    """Evaluation of the model in the checkpoint; None where the run ended before its first one."""


def choose_model(context: RunContext, progress: Progress, last: Path) -> ChosenModel:
    """Choose the model of a run that has ended, and report where it is not that of the last step.

    last: checkpoint of the last step, which is chosen where it is the best, where the job asks for it, and where the
    checkpoint of the best evaluation could not be written.
    """
    best, final = progress.best_evaluation, progress.last_evaluation
    if context.resolved.job.run.keep_model == "last" or best is None or final is None or best.step == progress.step:
        return ChosenModel(last, final)
    rows = "evaluation" if best.validation_log_loss is None else "validation"
    figures = (
        f"after step {best.step:,} of {progress.step:,}, with a log-loss of {best.choice_log_loss:.4f} on the {rows} "
        f"rows; at the end it was {final.choice_log_loss:.4f}"
    )
    try:
        checkpoint = find_checkpoint(context.directory.checkpoints, f"step-{best.step}")
        checkpoint.read_manifest()
    except (CheckpointFaultError, OSError) as error:
        context.reporter.event(BEST_MODEL, f"the model was best {figures}; but the last one is kept: {error}")
        return ChosenModel(last, final)
    context.reporter.event(BEST_MODEL, f"the model that is kept was best {figures}", step=best.step)
    return ChosenModel(checkpoint.path, best)
