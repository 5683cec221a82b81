"""State of a run: the content of a checkpoint, collected from the parts of the run and restored to them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from dlrm.checkpoint.progress import RunProgress
from dlrm.checkpoint.state_files import AVERAGE, load_state, read_state_names
from dlrm.dense_sync import DenseAveraging
from dlrm.gradient_stats.variance_reduction import VarianceReduction
from dlrm.optimizers import AveragingOptimizer
from dlrm.optimizers.pruning import Pruning
from dlrm.optimizers.weight_average import WeightAverage
from dlrm.preconditioners import Preconditioner
from sharding.comm.process_groups import Ranks
from sharding.embedding import ShardedTables

_BY_RANK = "dense_by_rank"
"""Name in a checkpoint of each rank's own dense weights and optimizer state, where they differ. Beside it, `dense` and
`dense_optimizer` are means over ranks."""


@dataclass(frozen=True)
class TrainingState:
    """The parts of a run that training changes.

    Schedules and the order of samples are functions of the position, which is in the progress; the scale S of the table
    gradient is fixed for the run, and is one of the settings in which its checkpoints must agree.
    """

    model: nn.Module
    tables: ShardedTables
    optimizer: Optimizer
    reduction: VarianceReduction | None
    ranks: Ranks
    average: WeightAverage | None = None
    preconditioner: Preconditioner | None = None
    dense_averaging: DenseAveraging | None = None
    pruning: Pruning | None = None

    def collect(self, progress: RunProgress) -> dict[str, Any]:
        """Return the state in the form that torch.distributed.checkpoint takes; tensors are not copied. Collective.

        Nothing draws from torch's generators between two steps today; their state is saved for code that will.
        """
        state = {
            "tables": self.tables.state_dict(),
            "dense": self._collect_dense(),
            "dense_optimizer": self.optimizer.state_dict(),
            "progress": progress.model_dump_json(),
            "random": _get_random_state(self.ranks),
        }
        if self.reduction is not None:
            state["variance_reduction"] = self.reduction.state_dict()
        if self.preconditioner is not None:
            state["preconditioner"] = self.preconditioner.state_dict()
        if self.pruning is not None:
            state["pruning"] = self.pruning.state_dict()
        if self.average is not None:
            state[AVERAGE] = self.average.state_dict()
        if self.dense_averaging is not None:
            own = {"dense": self.model.state_dict(), "dense_optimizer": state["dense_optimizer"]}
            state[_BY_RANK] = {f"rank-{self.ranks.rank}": own}
            state["dense_optimizer"] = self.dense_averaging.average_state(state["dense_optimizer"])
        return state

    def restore(self, path: Path, num_ranks: int) -> RunProgress:
        """Load the checkpoint `path`, which `num_ranks` ranks wrote, and return its progress.

        Other ranks than wrote it begin at the mean where dense weights differ by rank. Collective. Raises
        CheckpointError, after which the parts are unusable.
        """
        # The optimizer has no state where every step so far was dropped.
        if any(name.startswith("dense_optimizer.state.") for name in read_state_names(path)):
            self._make_optimizer_state()
        state = self.collect(RunProgress(num_steps=0))
        if num_ranks != self.ranks.world_size:
            # Random states, and weights of their own, belong to the ranks that wrote them.
            del state["random"]
            state.pop(_BY_RANK, None)
        load_state(state, path, self.ranks.background_group)
        dense = state[_BY_RANK][f"rank-{self.ranks.rank}"] if _BY_RANK in state else state
        if self.dense_averaging is not None:
            self.model.load_state_dict(dense["dense"])
        # Tensors were loaded in place, but for means; this call loads them and the plain values.
        self.optimizer.load_state_dict(dense["dense_optimizer"])
        if "random" in state:
            _set_random_state(self.ranks, state["random"])
        return RunProgress.model_validate_json(state["progress"])

    def _collect_dense(self) -> dict[str, torch.Tensor]:
        """Return the dense parameters that the run would leave. The optimizer restores those that it trains itself."""
        dense = self.model.state_dict()
        if isinstance(self.optimizer, AveragingOptimizer):
            dense |= self.optimizer.list_averages(self.model.named_parameters())
        if self.dense_averaging is not None:
            dense |= self.dense_averaging.list_averages(self.model.named_parameters())
        return dense

    def _make_optimizer_state(self) -> None:
        """Make the optimizer create its state, by a step with zero gradients whose effects are all overwritten."""
        self.optimizer.zero_grad(set_to_none=False)
        self.optimizer.step()


def _get_random_state(ranks: Ranks) -> dict[str, torch.Tensor]:
    state = {f"rank-{ranks.rank}": torch.get_rng_state()}
    if ranks.device.type == "cuda":
        state[f"rank-{ranks.rank}-cuda"] = torch.cuda.get_rng_state(ranks.device)
    return state


def _set_random_state(ranks: Ranks, state: dict[str, torch.Tensor]) -> None:
    torch.set_rng_state(state[f"rank-{ranks.rank}"])
    if ranks.device.type == "cuda":
        torch.cuda.set_rng_state(state[f"rank-{ranks.rank}-cuda"], ranks.device)
