"""Chooses the model that a run leaves: the one with the best evaluation, or the last one."""

from dataclasses import dataclass
from pathlib import Path

from dlrm.checkpoint.find import read_common_manifest, verify_checkpoint
from dlrm.checkpoint.progress import RunProgress
from dlrm.checkpoint.sharing import bring_to_rank0
from dlrm.record import (
    BEST_MODEL,
    BEST_MODEL_LOST,
    CheckpointDirectory,
    CheckpointFaultError,
    EndReason,
    EvaluationReport,
)
from dlrm.train.context import RunContext


@dataclass(frozen=True)
class ChosenModel:
    """A checkpoint of the run, and its evaluation."""

    checkpoint: Path
    evaluation: EvaluationReport | None
    """Evaluation of the model in the checkpoint; None if the run ended before its first one."""


def choose_model(context: RunContext, progress: RunProgress, last: Path, reason: EndReason) -> ChosenModel:
    """Choose the model of a run that has ended, and report if it is not the last step's. Collective.

    last: checkpoint of the last step. It is chosen if it is the best, if it has reached the target of the run, if the
    job asks for it, and if the checkpoint of the best evaluation is missing or damaged. reason: why the run has ended.
    """
    best, final = progress.best_evaluation, progress.last_evaluation
    is_last_wanted = context.resolved.job.run.keep_model == "last" or reason is EndReason.TARGET_REACHED
    if is_last_wanted or best is None or final is None or best.step == progress.step:
        return ChosenModel(last, final)
    rows = "evaluation" if best.validation_log_loss is None else "validation"
    figures = (
        f"after step {best.step:,} of {progress.step:,}, with a log-loss of {best.choice_log_loss:.4f} on the {rows} "
        f"rows; at the end it was {final.choice_log_loss:.4f}"
    )
    checkpoint = CheckpointDirectory(context.directory.checkpoint(best.step), best.step)
    try:
        manifest = read_common_manifest(checkpoint, context.ranks)
        bring_to_rank0(checkpoint.path, manifest, context.sharers, context.ranks)
        verify_checkpoint(checkpoint, manifest, context.ranks, context.sharers, is_rank0_enough=True)
    except (CheckpointFaultError, OSError) as error:
        message = f"the model was best {figures}; but its checkpoint is not whole, and the last one is kept: {error}"
        context.reporter.event(BEST_MODEL_LOST, message)
        return ChosenModel(last, final)
    context.reporter.event(BEST_MODEL, f"the model that is kept was best {figures}", step=best.step)
    return ChosenModel(checkpoint.path, best)
