"""New tables for every epoch, while the dense parameters go on (MEDA, Liu et al. 2023, arXiv 2305.19531).

A model of this kind learns the embeddings of its training rows by heart in its second pass over them. With new
embeddings in each epoch the dense parameters see rows that they do not know, again and again, and each epoch's tables
see every row once.
"""

from collections.abc import Callable

from dlrm.checkpoint.progress import RunProgress
from dlrm.record import TABLES_RESET
from dlrm.train.build import Parts
from dlrm.train.context import RunContext


def make_table_reset(
    parts: Parts, progress: RunProgress, context: RunContext, epoch_rows: int
) -> Callable[[int], None] | None:
    """Make a function that draws the tables anew if the next batch is the first to begin in an epoch.

    It is to be called before each batch, and is collective. Returns None if the job keeps its tables. epoch_rows:
    training rows of an epoch. A batch that runs over the end of an epoch is still trained with the tables of its
    beginning. The draw is the number of the epoch, so that an attempt that resumes there finds the same weights.
    """
    if not context.resolved.job.run.reset_tables_each_epoch:
        return None
    if parts.average is not None:
        parts.average.begins_at = progress.tables_drawn_at

    def reset_if_due(num_rows: int) -> None:
        del num_rows
        epoch = progress.num_samples // epoch_rows
        if epoch == progress.tables_drawn_at // epoch_rows:
            return
        parts.tables.reset(epoch)
        if parts.average is not None:
            parts.average.restart(progress.num_samples)
        progress.tables_drawn_at = progress.num_samples
        context.reporter.event(
            TABLES_RESET,
            f"epoch {epoch + 1} begins after step {progress.step:,} with newly drawn tables; the dense parameters go "
            "on as they are",
            step=progress.step,
            epoch=epoch + 1,
        )

    return reset_if_due
