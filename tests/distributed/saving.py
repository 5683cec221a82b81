"""Functions that ranks run: train on batches, save, and continue from a checkpoint."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed._shard.sharded_tensor.api import ShardedTensor

from dlrm.checkpoint.find import find_verified_checkpoint
from dlrm.checkpoint.progress import RunProgress
from dlrm.checkpoint.run_identity import RunIdentity
from dlrm.checkpoint.saver import Saver, SaveSettings
from dlrm.record import AttemptDirectory, EventReport, RunDirectory, SpoolReader, parse_report
from dlrm.reporting.reporter import Reporter
from dlrm.train.batch import to_device
from dlrm.train.build import Parts
from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import StepVote
from tests.distributed.reference import GlobalBatch
from tests.distributed.training import TrainingSetting

NEVER_SAVE = SaveSettings(every_seconds=1e9, num_kept=3, memory_bytes=2**40, ranks_per_node=4)


@dataclass
class PartialRun:
    """A part of a run on one rank: its losses, and the state at its end."""

    started_at: int
    losses: list[float] = field(default_factory=list)
    dense: dict[str, torch.Tensor] = field(default_factory=dict)
    shards: dict[str, torch.Tensor] = field(default_factory=dict)
    """Weights and optimizer state of the tables' shards, by name and offsets."""
    dense_state: dict[str, torch.Tensor] = field(default_factory=dict)
    random_numbers: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    """Random numbers drawn at the end."""


@dataclass
class ResumedRun:
    """One rank's parts of a run that continues from the newest sound checkpoint of its directory."""

    parts: Parts
    saver: Saver
    progress: RunProgress
    setting: TrainingSetting

    def step(self, batch: GlobalBatch, ranks: Ranks) -> float:
        share = replace(batch.cut_share(ranks.rank, ranks.world_size), index=self.progress.step)
        rates = self.setting.rates_at(self.progress.step)
        result = self.parts.step(to_device(share, ranks.device), rates, StepVote(is_ready_to_save=self.saver.is_ready))
        self.progress.step += 1
        self.progress.num_samples += batch.num_valid
        if self.parts.average is not None:
            self.parts.average.update(self.progress.num_samples)
        if result.is_save_due:
            self.saver.save_async(self.progress)
        return result.loss


def make_identity(setting: TrainingSetting, world_size: int) -> RunIdentity:
    return RunIdentity.from_job(setting.resolve_job(world_size), data_checksum=None)


def resume_run(
    ranks: Ranks, directory: Path, setting: TrainingSetting, settings: SaveSettings = NEVER_SAVE
) -> ResumedRun:
    parts = setting.build_parts(ranks)
    state = parts.make_state(ranks)
    reporter = Reporter(AttemptDirectory(directory / "attempt-1"), ranks.rank)
    identity = make_identity(setting, ranks.world_size)
    run = RunDirectory(directory)
    found = find_verified_checkpoint(run.checkpoints, identity, ranks, reporter)
    progress = state.restore(found.path, found.manifest.world_size) if found else RunProgress(num_steps=100)
    saver = Saver(run, state, identity, ranks, reporter, settings, progress.step or None)
    return ResumedRun(parts, saver, progress, setting)


def train_up_to(
    ranks: Ranks,
    directory: Path,
    setting: TrainingSetting,
    batches: list[GlobalBatch],
    up_to: int,
    is_saved: bool = True,
) -> PartialRun:
    """Train from the newest checkpoint, or the beginning, up to step `up_to`."""
    torch.manual_seed(1000 * ranks.world_size + ranks.rank)
    run = resume_run(ranks, directory, setting)
    result = PartialRun(started_at=run.progress.step)
    result.losses = [run.step(batch, ranks) for batch in batches[run.progress.step : up_to]]
    if is_saved:
        run.saver.save(run.progress)
    result.dense = {name: tensor.detach().clone() for name, tensor in run.parts.model.state_dict().items()}
    result.shards = dict(list_local_tensors(run.parts.tables.state_dict()))
    result.dense_state = dict(list_local_tensors(run.parts.optimizer.state_dict()["state"]))
    if run.parts.reduction is not None:
        result.dense_state |= dict(list_local_tensors(run.parts.reduction.state_dict(), "reduction"))
    if run.parts.step.pruning is not None:
        result.dense_state |= dict(list_local_tensors(run.parts.step.pruning.state_dict(), "pruning"))
    if run.parts.average is not None:
        result.dense_state |= dict(list_local_tensors(run.parts.average.state_dict(), "average"))
    result.random_numbers = torch.rand(8)
    return result


def list_local_tensors(state: Any, prefix: str = "") -> list[tuple[str, torch.Tensor]]:
    """Copy every tensor of nested dictionaries on this rank; list them by keys and offsets in the whole tensor."""
    if isinstance(state, dict):
        return [pair for key, value in state.items() for pair in list_local_tensors(value, f"{prefix}/{key}")]
    if isinstance(state, ShardedTensor):
        shards = state.local_shards()
        return [(f"{prefix}@{list(shard.metadata.shard_offsets)}", shard.tensor.clone()) for shard in shards]
    return [(prefix, state.clone())] if isinstance(state, torch.Tensor) else []


def read_events(directory: Path, name: str) -> list[EventReport]:
    """Read the events of that name that rank 0 reported."""
    path = AttemptDirectory(directory / "attempt-1").spool_file(0, "events")
    reports = [parse_report(line) for line in SpoolReader(path).read()]
    return [report for report in reports if isinstance(report, EventReport) and report.name == name]
