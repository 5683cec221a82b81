"""One training step of the whole global batch: dense in chunks, agree, then update.

Nothing moves before every rank knows that the step is sound, and tables do not change inside a step: the result does
not depend on the number of ranks or the chunk beyond fp32 rounding.
"""

import math
from dataclasses import dataclass

import torch
from torch.optim import Optimizer

from dlrm.gradient_stats import Share
from dlrm.gradient_stats.noise import LayerNoise, StepNoise
from dlrm.gradient_stats.variance_reduction import AtBounds, VarianceReduction
from dlrm.optimizers import StepRates, set_batch_fraction, set_learning_rate
from dlrm.train.batch import DeviceBatch
from dlrm.train.dense_pass import DensePass
from dlrm.train.part_clock import PartClock
from sharding.comm.gradient_buffer import GradientBuffer
from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import DEFAULT_VOTE, StepVote, all_reduce_votes
from sharding.embedding import BatchInputDist, PooledBatch, ShardedTables


@dataclass(frozen=True)
class StepResult:
    """The same on every rank."""

    loss: float
    """Weighted loss sum over the valid rows of the global batch, over their number and the mean weight of all training
    rows: its expectation is the weighted mean over these. NaN where the step was dropped."""
    is_dropped: bool
    """Not finite on some rank: nothing was updated on any."""
    is_stop_requested: bool
    """Some rank was asked to stop; this step still counts."""
    is_save_due: bool
    """Every rank is ready to save what this step has left."""
    noise: StepNoise | None = None
    """None where moments were not measured."""
    at_bounds: AtBounds | None = None
    """Of the factors of variance reduction; None without it, and where moments were not measured."""


@dataclass(frozen=True)
class Updated:
    """What the update of a step learned on its way."""

    noise: StepNoise | None = None
    at_bounds: AtBounds | None = None


@dataclass(frozen=True)
class TrainingStep:
    """Calls on every rank together make one step. All state lives in the parts."""

    dense_pass: DensePass
    tables: ShardedTables
    sums: GradientBuffer
    optimizer: Optimizer
    reduction: VarianceReduction | None
    layer_noise: LayerNoise
    ranks: Ranks
    full_rows: int
    """Rows of every global batch but the run's last: B, or those of an epoch where it has fewer."""
    mean_weight: float
    """Of the training rows."""
    clock: PartClock

    def send(self, batch: DeviceBatch) -> BatchInputDist:
        """Bring the ids of a batch on their way, while the one before it trains."""
        return self.tables.start_input_dist(batch.ids, batch.lengths)

    def __call__(
        self, batch: DeviceBatch, rates: StepRates, wishes: StepVote = DEFAULT_VOTE, sent: BatchInputDist | None = None
    ) -> StepResult:
        """wishes: of this rank, for after the step. sent: the ids of the batch, which else are sent now.

        Raises nothing of its own: a step that is not finite is dropped on all ranks and says so.
        """
        # Every row counts the same, in a short batch too: its gradient is sum(w_i g_i) / (full_rows mean_weight), w_i
        # the weights of its rows. All ranks know these numbers beforehand, so that nothing is exchanged. Divided by its
        # own few rows, a short batch would set Adagrad's sums and Adam's mean squares for all steps behind it.
        divisor = self.full_rows * self.mean_weight
        self.sums.zero()
        with self.clock.part("lookup"):
            pooled = self.tables.lookup(sent or self.send(batch), self.full_rows, rates.table)
        is_first = self.reduction is not None and not self.reduction.has_measured
        loss_sum = self.dense_pass(batch, pooled, self._share(batch), divisor, is_whole=is_first)
        with self.clock.part("agree"):
            # One transfer from the device.
            loss, total = torch.stack([loss_sum, self.sums.total().double()]).tolist()
            agreement = all_reduce_votes(self.ranks, wishes, is_finite=math.isfinite(loss + total), loss_sum=loss)
        if agreement.is_finite:
            updated = self._update(pooled, batch, divisor, rates)
        else:
            pooled.discard()
            updated = Updated()
        return StepResult(
            loss=agreement.loss_sum / (batch.num_valid * self.mean_weight),
            is_dropped=not agreement.is_finite,
            is_stop_requested=agreement.is_stop_requested,
            is_save_due=agreement.is_save_due,
            noise=updated.noise,
            at_bounds=updated.at_bounds,
        )

    def _share(self, batch: DeviceBatch) -> Share:
        is_short = batch.num_valid < self.full_rows
        ranks = self.ranks
        return Share(ranks.rank, ranks.world_size, len(batch.labels), batch.num_valid, is_short, batch.halves)

    def _update(self, pooled: PooledBatch, batch: DeviceBatch, divisor: float, rates: StepRates) -> Updated:
        with self.clock.part("wait_for_sum"):
            dense_sum = self.sums.start_all_reduce(with_extra_sums=self.dense_pass.estimator.is_measuring)
        with self.clock.part("table_update"):
            pooled.apply_update()
        with self.clock.part("wait_for_sum"):
            dense_sum.wait()
        with self.clock.part("optimizer"):
            self.sums.gradient /= divisor
            moments = self.dense_pass.estimator.moments(batch.num_valid, self.mean_weight)
            noise = None if moments is None else self.layer_noise(moments)
            set_learning_rate(self.optimizer, rates.dense)
            set_batch_fraction(self.optimizer, batch.num_valid / self.full_rows)
            if self.reduction is None:
                self.optimizer.step()
                return Updated(noise)
            return Updated(noise, self.reduction.step(moments, batch.index))
