"""New tables for every epoch, while the dense parameters go on (MEDA, Liu et al. 2023, arXiv 2305.19531).

A model of this kind learns the embeddings of its training rows by heart in its second pass over them. With new
embeddings in each epoch the dense parameters see rows that they do not know, again and again, and each epoch's tables
see every row once.
"""

from dataclasses import dataclass

from dlrm.checkpoint.progress import RunProgress
from dlrm.optimizers.weight_average import WeightAverage
from dlrm.record import TABLES_RESET
from dlrm.reporting.reporter import Reporter
from sharding.embedding import ShardedTables


@dataclass(frozen=True)
class TableReset:
    """Draws the tables of a run anew before the first batch that begins in a new epoch."""

    tables: ShardedTables
    average: WeightAverage | None
    """Average of the weights, which begins anew with the tables; None if absent."""
    reporter: Reporter
    epoch_rows: int
    """Training rows of an epoch."""

    def reset_if_due(self, progress: RunProgress) -> None:
        """Draw the tables anew where the next batch is the first one that begins in an epoch. Collective.

        A batch that runs over the end of an epoch is still trained with the tables of its beginning. The draw is the
        number of the epoch, so that an attempt that resumes here finds the same weights.
        """
        epoch = progress.num_samples // self.epoch_rows
        if epoch == progress.tables_drawn_at // self.epoch_rows:
            return
        self.tables.reset(epoch)
        if self.average is not None:
            self.average.restart()
        progress.tables_drawn_at = progress.num_samples
        self.reporter.event(
            TABLES_RESET,
            f"epoch {epoch + 1} begins after step {progress.step:,} with newly drawn tables; the dense parameters go "
            "on as they are",
            step=progress.step,
            epoch=epoch + 1,
        )
