"""Evaluation of the model in training: every evaluation row once, over all ranks."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from dlrm.config import TaskConfig
from dlrm.data.batches import read_evaluation_batches
from dlrm.data.dataset import Dataset
from dlrm.data.groups import Grouping
from dlrm.data.rows import RowSource
from dlrm.metrics.binary import auc, compute_binary_metrics, constant_log_loss
from dlrm.metrics.tasks import compute_task_metrics
from dlrm.metrics.true_rates import correct_rate, get_log_share, weigh_negatives
from dlrm.record import EvaluationReport
from dlrm.train.input_copies import copy_to_device
from dlrm.train.stop_request import StopRequest
from sharding.comm.collectives import broadcast_from_rank0
from sharding.comm.process_groups import Ranks
from sharding.comm.step_vote import StepVote, all_reduce_votes
from sharding.embedding import ShardedTables

MAX_SHARE_SIZE = 65_536
"""Samples of one evaluation batch on one rank, at most."""
MIN_BATCH_SIZE = 16_384
"""Samples of an evaluation batch over all ranks, at least: smaller ones take longer and save little memory."""


class DivergedError(RuntimeError):
    """Error of a loss, gradients or predictions that are not finite; more steps would not repair them."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}; lower dense_optimizer.learning_rate or table_optimizer.learning_rate, or check the data for "
            "extreme values"
        )


class EvaluationStoppedError(Exception):
    """Exception raised on every rank, after the same batch, once some rank was asked to stop."""


@dataclass(frozen=True)
class Scores:
    """Scores of all evaluation rows at true rates, in their order."""

    logits: np.ndarray
    """[n] float32."""
    labels: np.ndarray
    weights: np.ndarray | None
    """[n] float32, with each negative counted for the ones left out; None if all are the same."""
    further_logits: np.ndarray | None = None
    """[n, T - 1] float32, of the tasks after the first; None if there are none."""
    further_labels: np.ndarray | None = None
    """[n, T - 1] float32, NaN where one is missing."""


class Evaluator:
    """Scores the evaluation rows in fp32, whatever the training's precision. Calls are collective."""

    def __init__(
        self,
        model: nn.Module,
        tables: ShardedTables,
        dataset: Dataset,
        rows: RowSource,
        ranks: Ranks,
        share_size: int,
        chunk_size: int,
        stop: StopRequest,
        keep: Callable[[int, Scores], None] | None = None,
        on_rows: Callable[[int], None] = lambda _: None,
        negative_sampling: float | None = None,
        grouping: Grouping | None = None,
        tasks: Sequence[TaskConfig] = (),
    ) -> None:
        """Choose the size of evaluation batches.

        rows: rows of `dataset` to evaluate on. share_size: samples of a training batch on one rank. keep: takes the
        step and the scores of each evaluation, on rank 0. on_rows: called after each batch, with the number of scored
        rows. negative_sampling: share of the negatives that the rows hold; None for rows as they occur. grouping:
        groups within which the order of the rows is measured; None for none. tasks: of the model; empty to
        measure the first alone.

        An evaluation batch is no larger, except for MIN_BATCH_SIZE: memory that is enough for training is enough here.
        """
        self._model = model
        self._tables = tables
        self._rows = rows
        self._train_label_rate = correct_rate(dataset.train_label_rate, negative_sampling)
        self._is_weighted = dataset.has_weights
        self._ranks = ranks
        self._chunk_size = chunk_size
        self._stop = stop
        self._keep = keep
        self._on_rows = on_rows
        self._negative_sampling = negative_sampling
        self._grouping = grouping
        self._tasks = tasks
        self._share_size = _choose_share_size(self._rows.num_rows, ranks.world_size, share_size)
        self._baselines: dict[str, float | None] = {}
        """Metrics of trivial models by name, the same at every evaluation; empty before the first one."""
        self._groups: np.ndarray | None = None
        """Group of each row; None without groups, before the first evaluation, and on other ranks than the first."""

    def __call__(self, step: int) -> EvaluationReport:
        """Evaluate the model after `step` batches. Collective.

        Raises DivergedError and EvaluationStoppedError, on all ranks.
        """
        started = time.monotonic()
        scores = self._gather(self._score())
        report = broadcast_from_rank0(self._ranks, scores and self._report(scores, step, started))
        if report is None:
            raise DivergedError(f"predictions were not finite after step {step}")
        if scores is not None and self._keep is not None:
            self._keep(step, scores)
        return report

    def _report(self, scores: Scores, step: int, started: float) -> EvaluationReport | None:
        """Compute the metrics; None if a prediction is NaN."""
        if np.isnan(scores.logits).any():
            return None
        tasks: dict[str, float | None] | None = None
        if scores.further_logits is not None and scores.further_labels is not None:
            if np.isnan(scores.further_logits).any():
                return None
            labels = np.column_stack([scores.labels, scores.further_labels])
            logits = np.column_stack([scores.logits, scores.further_logits])
            tasks = compute_task_metrics(self._tasks, labels, logits, scores.weights) if self._tasks else {}
        metrics = asdict(compute_binary_metrics(scores.labels, scores.logits, scores.weights))
        self._baselines = self._baselines or {
            "constant_log_loss": constant_log_loss(scores.labels, self._train_label_rate, scores.weights),
            "best_possible_auc": compute_best_possible_auc(self._rows),
        }
        grouped = self._measure_groups(scores)
        seconds = time.monotonic() - started
        fields = {"step": step, **metrics, **self._baselines, "grouped": grouped, "tasks": tasks, "seconds": seconds}
        return EvaluationReport.model_validate(fields)

    def _measure_groups(self, scores: Scores) -> dict[str, float | None] | None:
        """Measure the order of the rows within groups; None without groups."""
        if self._grouping is None:
            return None
        if self._groups is None:
            self._groups = self._grouping.read_source(self._rows)
        return self._grouping.measure(scores.labels, scores.logits, scores.weights, self._groups)

    @torch.no_grad()
    def _score(self) -> torch.Tensor:
        """Score this rank's rows: [2 T + 1, rows] of logits, labels and weights; the labels of a padding row are NaN.

        Raises EvaluationStoppedError.
        """
        logits: list[torch.Tensor] = []
        labels: list[torch.Tensor] = []
        weights: list[torch.Tensor] = []
        rank, world_size = self._ranks.rank, self._ranks.world_size
        with (
            closing(read_evaluation_batches(self._rows, self._share_size, rank, world_size)) as batches,
            closing(copy_to_device(batches, self._ranks.device, self._tables.id_dtype)) as copies,
        ):
            for batch in copies:
                if all_reduce_votes(self._ranks, StepVote(is_stop_requested=self._stop.is_requested)).is_stop_requested:
                    raise EvaluationStoppedError
                pooled = self._tables.lookup(self._tables.start_input_dist(batch.ids), batch.num_valid)
                for start in range(0, self._share_size, self._chunk_size):
                    end = min(start + self._chunk_size, self._share_size)
                    logits.append(self._model(batch.dense[start:end], pooled.read_chunk(start, end)))
                self._on_rows(min((len(labels) + 1) * self._share_size * world_size, self._rows.num_rows))
                labels.append(torch.where(batch.mask[:, None] > 0, batch.labels.view(len(batch.mask), -1), torch.nan))
                # A copy: on a GPU the weights are a part of the batch's block, which would stay.
                weights.append(batch.weights.clone())
                # Frees its memory before the next lookup.
                del batch, pooled
        all_logits, all_labels = torch.cat(logits), torch.cat(labels)
        return torch.cat([all_logits.view(all_labels.shape).T, all_labels.T, torch.cat(weights)[None]])

    def _gather(self, mine: torch.Tensor) -> Scores | None:
        """Gather the valid rows of all ranks on rank 0, in the order of the source; None on the others."""
        is_first = self._ranks.rank == 0
        all_ranks = mine.new_empty((self._ranks.world_size, *mine.shape)) if is_first else None
        parts = None if all_ranks is None else [*all_ranks.unbind()]
        dist.gather(mine, parts, dst=0, group=self._ranks.dense_group)
        if all_ranks is None:
            return None
        # Each rank has a share of every batch, one behind the other: [ranks, 2 T + 1, batches, share].
        shares = all_ranks.unflatten(2, (-1, self._share_size))
        found = shares.permute(1, 2, 0, 3).flatten(1).cpu().numpy()
        num_tasks, share = len(found) // 2, self._negative_sampling
        found = found[:, ~np.isnan(found[num_tasks])]
        logits, labels, weights = found[:num_tasks], found[num_tasks:-1], found[-1] if self._is_weighted else None
        return Scores(
            logits[0] + np.float32(get_log_share(share)),
            labels[0],
            weigh_negatives(labels[0], weights, share),
            logits[1:].T if num_tasks > 1 else None,
            labels[1:].T if num_tasks > 1 else None,
        )


def _choose_share_size(num_rows: int, world_size: int, train_share_size: int) -> int:
    """Choose the samples of one evaluation batch on one rank."""
    wanted_size = max(train_share_size, math.ceil(MIN_BATCH_SIZE / world_size))
    return min(math.ceil(num_rows / world_size), wanted_size, MAX_SHARE_SIZE)


def compute_best_possible_auc(rows: RowSource) -> float | None:
    """Compute the AUC of the probabilities that the labels were drawn with; None if they are not known."""
    labels: list[np.ndarray] = []
    probabilities: list[np.ndarray] = []
    for start in range(0, rows.num_rows, MAX_SHARE_SIZE):
        row_numbers = np.arange(start, min(start + MAX_SHARE_SIZE, rows.num_rows))
        best = rows.best_probabilities(row_numbers)
        if best is None:
            return None
        probabilities.append(best)
        labels.append(rows.read(row_numbers).labels)
    return auc(np.concatenate(labels), np.concatenate(probabilities))
