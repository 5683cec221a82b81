"""One training step of the whole global batch: the dense pass in chunks, a vote, then the update.

Nothing moves before every rank knows that the step is finite, and tables do not change inside a step: the result does
not depend on the number of ranks or the chunk beyond fp32 rounding, unless ranks average their weights.
"""

from dataclasses import dataclass, replace

from torch.optim import Optimizer

from dlrm.dense_sync import DenseSync
from dlrm.gradient_stats.estimator import Share
from dlrm.gradient_stats.layer_noise import LayerNoise
from dlrm.gradient_stats.variance_reduction import VarianceReduction
from dlrm.optimizers import SampleMemory, StepRates, set_average_weight, set_batch_fraction, set_learning_rate
from dlrm.optimizers.pruning import Pruning
from dlrm.preconditioners import Preconditioner
from dlrm.train.batch import DeviceBatch
from dlrm.train.dense_pass import DensePass
from dlrm.train.measurement import Readback, StepMeasurement, start_readback
from dlrm.train.profiler import PartClock
from sharding.comm.gradient_buffer import GradientBuffer
from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import DEFAULT_VOTE, StepVote, all_reduce_votes
from sharding.embedding import BatchInputDist, PooledBatch, ShardedTables


@dataclass(frozen=True)
class StepResult:
    """The result of a step, the same on every rank."""

    loss: float
    """Weighted loss sum over the valid rows of the global batch, divided by their number and the mean weight of all
    training rows, so that its expectation is the weighted mean over these; NaN where the step was dropped."""
    is_dropped: bool
    """Whether loss or gradients were not finite on some rank: then nothing was updated on any."""
    is_stop_requested: bool
    """Whether some rank was asked to stop; this step still counts."""
    is_save_due: bool
    """Whether every rank is ready to save what this step has left."""
    measurement: Readback[StepMeasurement] | None = None
    """Noise of the dense gradient and bounds of variance reduction; None if moments were not measured."""


@dataclass(frozen=True)
class TrainingStep:
    """Makes one step when all ranks call it together. All state lives in the parts."""

    dense_pass: DensePass
    tables: ShardedTables
    gradients: GradientBuffer
    optimizer: Optimizer
    dense_sync: DenseSync
    """All-reduce of the dense gradients, or average of the weights in its place."""
    reduction: VarianceReduction | None
    """Scaling of the dense gradient by its signal-to-noise ratio."""
    preconditioner: Preconditioner | None
    """Change of the dense gradient after that; None if absent."""
    layer_noise: LayerNoise
    ranks: Ranks
    full_rows: int
    """Rows of every global batch but the run's last: B, or all rows of an epoch that has fewer."""
    moments_every: int
    """Number of steps from one measurement of moments to the next."""
    mean_weight: float
    """Mean weight of the training rows."""
    clock: PartClock
    pruning: Pruning | None = None
    """Masks of pruned elements of the dense matrices; None if nothing is pruned."""
    num_copies: int = 1
    """Rows of the dense pass for each sample."""
    memory: SampleMemory | None = None
    """Memory of means in samples; None if they forget by steps."""

    def resize(self, full_rows: int, moments_every: int) -> "TrainingStep":
        """Return the step for batches of another size. Both have the same parts, so that all state stays."""
        return replace(self, full_rows=full_rows, moments_every=moments_every)

    def start_input_dist(self, batch: DeviceBatch) -> BatchInputDist:
        """Start to send the ids of a batch, while the one before it trains. Collective."""
        return self.tables.start_input_dist(batch.ids)

    def __call__(
        self,
        batch: DeviceBatch,
        rates: StepRates,
        vote: StepVote = DEFAULT_VOTE,
        handle: BatchInputDist | None = None,
    ) -> StepResult:
        """Train on one batch. Collective.

        vote: what this rank wants to happen after the step. handle: of the batch's input dist, which is started now
        if there is none. A step that is not finite is dropped on all ranks, and the result says so.
        """
        # Every row counts the same, in a short batch too: its gradient is sum(w_i g_i) / (full_rows mean_weight), w_i
        # the weights of its rows. All ranks know these numbers beforehand, so that nothing is exchanged. Divided by its
        # own few rows, a short batch would distort Adagrad's sums and Adam's mean squares for all later steps.
        divisor = self.full_rows * self.mean_weight
        if self.pruning is not None:
            self.pruning.prune(rates.pruned)
        self.gradients.zero()
        with self.clock.part("lookup"):
            handle = handle or self.start_input_dist(batch)
            pooled = self.tables.lookup(handle, self.full_rows, rates.table)
        is_first = self.reduction is not None and not self.reduction.is_initialised
        loss_sum = self.dense_pass(batch, pooled, self._make_share(batch), divisor, is_whole=is_first)
        with self.clock.part("agree"):
            # 0 times a number is 0; 0 times infinity or NaN is NaN.
            checked_sum = loss_sum + 0.0 * self.gradients.sum_elements()
            decision = all_reduce_votes(self.ranks, vote, checked_sum)
        measurement = None
        if decision.is_finite:
            measurement = self._update(pooled, batch, divisor, rates)
        else:
            pooled.discard()
        return StepResult(
            loss=decision.loss_sum / (batch.num_valid * self.mean_weight),
            is_dropped=not decision.is_finite,
            is_stop_requested=decision.is_stop_requested,
            is_save_due=decision.is_save_due,
            measurement=measurement,
        )

    def _make_share(self, batch: DeviceBatch) -> Share:
        is_full, ranks = batch.num_valid >= self.full_rows, self.ranks
        is_measured = is_full and batch.index % self.moments_every == 0
        return Share(
            ranks.rank,
            ranks.world_size,
            len(batch.labels),
            batch.num_valid,
            is_measured,
            batch.halves,
            is_full,
            self.dense_pass.estimator.num_groups,
        )

    def _update(
        self, pooled: PooledBatch, batch: DeviceBatch, divisor: float, rates: StepRates
    ) -> Readback[StepMeasurement] | None:
        """Update tables and dense parameters: the dense gradients are summed while owners update their rows."""
        with self.clock.part("wait_for_sum"):
            dense_sum = self.dense_sync.start(with_extra_sums=self.dense_pass.estimator.is_measuring)
        with self.clock.part("table_update"):
            pooled.apply_update(rates.table)
        with self.clock.part("wait_for_sum"):
            dense_sum.wait()
        with self.clock.part("optimizer"):
            self.gradients.gradient /= divisor / self.dense_sync.num_gradients
            moments = self.dense_pass.estimator.compute_moments(batch.num_valid, self.mean_weight)
            # Before the gradient is scaled, of which the moments are views.
            sums = None if moments is None else self.layer_noise.compute_sums(moments)
            set_learning_rate(self.optimizer, rates.dense)
            set_batch_fraction(self.optimizer, batch.num_valid / self.full_rows)
            set_average_weight(self.optimizer, rates.average_weight)
            self._set_growth(rates.growth)
            clipped = None if self.reduction is None else self.reduction.precondition(moments, batch.index)
            if self.pruning is not None:
                self.pruning.mask_gradients()
            if self.preconditioner is not None:
                self.preconditioner.precondition(self.mean_weight, self.num_copies, rates.dense)
                if self.pruning is not None:
                    self.pruning.mask_gradients()
            self.dense_sync.update(batch.index, rates.dense)
            if self.reduction is not None:
                self.reduction.finish_update()
            if moments is None or sums is None:
                return None
            return start_readback(self.layer_noise, moments, sums, clipped)

    def _set_growth(self, growth: float) -> None:
        """Set the growth of the batch for the means that forget by samples."""
        if self.memory is None:
            return
        self.memory.growth = growth
        if self.reduction is not None:
            self.reduction.set_growth(growth)
