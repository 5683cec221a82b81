"""One training step of the whole global batch: dense in chunks, agree, then update.

Nothing moves before every rank knows that the step is sound, and tables do not change inside a step: the result does
not depend on the number of ranks or the chunk beyond fp32 rounding.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional as F
from torch.optim import Optimizer

from dlrm.device_batch import DeviceBatch
from dlrm.model import DLRM
from dlrm.optimizers import StepRates
from sharding.agree import NO_WISHES, Wishes, agree
from sharding.dense import FlatGradients
from sharding.ranks import Ranks
from sharding.tables import PooledBlock, ShardedTables


@dataclass(frozen=True)
class StepSettings:
    """What stays the same over a run."""

    chunk_size: int
    """c, samples whose activations exist at a time."""
    is_bf16: bool
    """Matrix products of the dense part under bf16 autocast."""
    mean_weight: float
    """Of the training rows. The loss of a global batch is sum(w_i l_i) / (n mean_weight), w_i the weights of its n
    rows: every rank knows n from the position and the mean from the data, so that nothing is exchanged. Its expectation
    is the weighted mean over the training rows, and weights twice as large change nothing."""


@dataclass(frozen=True)
class StepResult:
    """The same on every rank."""

    loss: float
    """Mean over the valid rows of the global batch, weighted as StepSettings says; NaN where the step was dropped."""
    is_dropped: bool
    """Not finite on some rank: nothing was updated on any."""
    is_stop_requested: bool
    """Some rank was asked to stop; this step still counts."""
    is_save_due: bool
    """Every rank is ready to save what this step has left."""


class TrainingStep:
    """Calls on every rank together make one step. All state lives in the model, the tables and the optimizer."""

    def __init__(
        self, model: DLRM, tables: ShardedTables, optimizer: Optimizer, ranks: Ranks, settings: StepSettings
    ) -> None:
        self._model = model
        self._tables = tables
        self._optimizer = optimizer
        self._ranks = ranks
        self._settings = settings
        self._gradients = FlatGradients(model.parameters(), ranks)

    def __call__(self, batch: DeviceBatch, rates: StepRates, wishes: Wishes = NO_WISHES) -> StepResult:
        """wishes: of this rank, for after the step.

        Raises nothing of its own: a step that is not finite is dropped on all ranks and says so.
        """
        self._tables.set_learning_rate(rates.table)
        block = self._tables.lookup(batch.ids, batch.lengths, batch.num_valid)
        loss_sum = self._backward_in_chunks(batch, block)
        agreement = agree(
            self._ranks,
            wishes,
            is_finite=bool(torch.isfinite(loss_sum + self._gradients.buffer.sum())),
            loss_sum=loss_sum.item(),
        )
        if agreement.is_finite:
            self._update(block, batch.num_valid, rates)
        return StepResult(
            loss=agreement.loss_sum / self._divisor(batch.num_valid),
            is_dropped=not agreement.is_finite,
            is_stop_requested=agreement.is_stop_requested,
            is_save_due=agreement.is_save_due,
        )

    def _backward_in_chunks(self, batch: DeviceBatch, block: PooledBlock) -> torch.Tensor:
        """Weighted loss sum of this rank's share, as float64; not finite where any gradient is not.

        Leaves the dense gradients of the loss sum in the flat buffer, and scale / divisor times the pooled ones in the
        block.
        """
        self._gradients.zero()
        to_scaled_mean = block.scale / self._divisor(batch.num_valid)
        loss_sum = torch.zeros((), dtype=torch.float64, device=self._ranks.device)
        share_size = len(batch.labels)
        for start in range(0, share_size, self._settings.chunk_size):
            end = min(start + self._settings.chunk_size, share_size)
            pooled = block.chunk(start, end).requires_grad_()  # [c, F, D]
            with torch.autocast(self._ranks.device.type, torch.bfloat16, enabled=self._settings.is_bf16):
                logits = self._model(batch.dense[start:end], pooled)  # [c]
            loss = F.binary_cross_entropy_with_logits(
                logits.float(), batch.labels[start:end], weight=batch.weights[start:end], reduction="sum"
            )
            loss.backward()
            assert pooled.grad is not None, "the logits depend on the tables"
            block.set_gradient(start, end, pooled.grad * to_scaled_mean)
            loss_sum += loss.detach() + 0.0 * pooled.grad.sum()
        return loss_sum

    def _divisor(self, num_valid: int) -> float:
        """What a sum over the rows of a global batch is divided by."""
        return num_valid * self._settings.mean_weight

    def _update(self, block: PooledBlock, num_valid: int, rates: StepRates) -> None:
        dense_sum = self._gradients.start_sum()
        self._tables.update(block)
        dense_sum.wait()
        self._gradients.buffer /= self._divisor(num_valid)
        for group in self._optimizer.param_groups:
            group["lr"] = rates.dense
        self._optimizer.step()
