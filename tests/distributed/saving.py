"""Functions that ranks run: train on given batches, save, and go on from what was saved."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed._shard.sharded_tensor.api import ShardedTensor

from dlrm.checkpoint.find import newest_sound
from dlrm.checkpoint.progress import Progress
from dlrm.checkpoint.run_identity import RunIdentity
from dlrm.checkpoint.saver import Saver, SaveSettings
from dlrm.checkpoint.state import TrainingState
from dlrm.optimizers import StepRates
from dlrm.record import AttemptDirectory, EventReport, RunDirectory, SpoolReader, parse_report
from dlrm.reporting.reporter import Reporter
from dlrm.train.batch import to_device
from dlrm.train.build import Parts
from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import StepVote
from tests.distributed.reference import GlobalBatch
from tests.distributed.training import Setting

NEVER = SaveSettings(every_seconds=1e9, num_kept=3, memory_bytes=2**40)


@dataclass
class Piece:
    """A part of a run on one rank, and what it was at the end."""

    started_at: int
    losses: list[float] = field(default_factory=list)
    dense: dict[str, torch.Tensor] = field(default_factory=dict)
    shards: dict[str, torch.Tensor] = field(default_factory=dict)
    """Weights and optimizer state of the tables' shards, by name and place."""
    dense_state: dict[str, torch.Tensor] = field(default_factory=dict)
    random_numbers: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    """Drawn at the end."""


@dataclass
class Trainer:
    """One rank's parts of a run in `directory`, gone on from its newest sound checkpoint."""

    parts: Parts
    saver: Saver
    progress: Progress
    rates: StepRates

    def step(self, batch: GlobalBatch, ranks: Ranks) -> float:
        share = replace(batch.share(ranks.rank, ranks.world_size), index=self.progress.step)
        result = self.parts.step(
            to_device(share, ranks.device), self.rates, StepVote(is_ready_to_save=self.saver.is_ready)
        )
        self.progress.step += 1
        self.progress.num_samples += batch.num_valid
        if result.is_save_due:
            self.saver.save_async(self.progress)
        return result.loss


def label_of(setting: Setting, world_size: int) -> RunIdentity:
    return RunIdentity.of(setting.resolved(world_size), data_checksum=None)


def trainer_in(ranks: Ranks, directory: Path, setting: Setting, settings: SaveSettings = NEVER) -> Trainer:
    parts = setting.build(ranks)
    state = TrainingState(parts.model, parts.tables, parts.optimizer, parts.reduction, ranks)
    reporter = Reporter(AttemptDirectory(directory / "attempt-1"), ranks.rank)
    label = label_of(setting, ranks.world_size)
    run = RunDirectory(directory)
    found = newest_sound(run.checkpoints, label, ranks, reporter)
    progress = state.restore(found.path, found.manifest.world_size) if found else Progress(num_steps=100)
    saver = Saver(run, state, label, ranks, reporter, settings, progress.step or None)
    return Trainer(parts, saver, progress, StepRates(setting.dense_rate, setting.table_rate))


def train_on(
    ranks: Ranks, directory: Path, setting: Setting, batches: list[GlobalBatch], up_to: int, is_saved: bool = True
) -> Piece:
    """Train from the newest checkpoint, or the beginning, up to step `up_to`."""
    torch.manual_seed(1000 * ranks.world_size + ranks.rank)
    trainer = trainer_in(ranks, directory, setting)
    piece = Piece(started_at=trainer.progress.step)
    piece.losses = [trainer.step(batch, ranks) for batch in batches[trainer.progress.step : up_to]]
    if is_saved:
        trainer.saver.save(trainer.progress)
    piece.dense = {name: tensor.detach().clone() for name, tensor in trainer.parts.model.state_dict().items()}
    piece.shards = dict(local_tensors(trainer.parts.tables.state()))
    piece.dense_state = dict(local_tensors(trainer.parts.optimizer.state_dict()["state"]))
    if trainer.parts.reduction is not None:
        piece.dense_state |= dict(local_tensors(trainer.parts.reduction.state_dict(), "reduction"))
    piece.random_numbers = torch.rand(8)
    return piece


def local_tensors(state: Any, prefix: str = "") -> list[tuple[str, torch.Tensor]]:
    """Every tensor of nested dictionaries on this rank, by its keys and its place in the whole; copied."""
    if isinstance(state, dict):
        return [pair for key, value in state.items() for pair in local_tensors(value, f"{prefix}/{key}")]
    if isinstance(state, ShardedTensor):
        shards = state.local_shards()
        return [(f"{prefix}@{list(shard.metadata.shard_offsets)}", shard.tensor.clone()) for shard in shards]
    return [(prefix, state.clone())] if isinstance(state, torch.Tensor) else []


def events_of(directory: Path, name: str) -> list[EventReport]:
    """What rank 0 told under that name."""
    path = AttemptDirectory(directory / "attempt-1").spool_file(0, "events")
    reports = [parse_report(line) for line in SpoolReader(path).read()]
    return [report for report in reports if isinstance(report, EventReport) and report.name == name]
