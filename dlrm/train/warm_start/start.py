"""Warm start: loads the weights and, on request, the optimizer state of an earlier model into the parts of a run."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from dlrm.config import ResolvedJob
from dlrm.data.dataset import Dataset
from dlrm.data.errors import DataError
from dlrm.data.packed.open import open_encoders
from dlrm.data.prepare.fit import check_extends, open_base
from dlrm.exported_model.layout import WEIGHTS
from dlrm.exported_model.load import ModelError, check_files
from dlrm.record import BLEND_LEFT_OUT, TrainedModel
from dlrm.reporting.reporter import Reporter
from dlrm.train.build import Parts
from dlrm.train.context import RunContext
from dlrm.train.warm_start.source import FIELD, find_source, read_record
from dlrm.train.warm_start.vocabulary import describe_extension
from sharding.comm.collectives import run_on_all_ranks
from sharding.embedding import Shard
from sharding.embedding.int8_rows import to_stored

ROWS_PER_READ = 1 << 16
"""Rows of a table that are copied at a time: the file is mapped, and never in memory as a whole."""


def start_warm(parts: Parts, context: RunContext, dataset: Dataset) -> None:
    """Start `parts`, still in their initial state, from the model that `run.warm_start` names. Collective.

    Rows of tables that it did not have, and without `optimizer_state` the optimizers, stay as they are. Nothing is done
    if there is no warm start. Raises DataError, on every rank.
    """
    resolved, ranks, reporter = context.resolved, context.ranks, context.reporter
    warm_start = resolved.job.run.warm_start
    if warm_start is None:
        return
    reporter.progress("building", f"reading the model in {warm_start.source}")
    on_ranks = partial(run_on_all_ranks, ranks.background_group, errors=DataError)
    source = on_ranks(lambda: find_source(resolved, context.directory))[0]
    assert source is not None, "there is a warm start"
    on_ranks(lambda: _check_whole(source) if ranks.rank == 0 else None)
    grown = on_ranks(lambda: _check_fits(source, resolved, dataset))[0]
    _copy_weights(parts, source.path)
    if warm_start.optimizer_state:
        checkpoint = source.checkpoint
        assert checkpoint is not None, "a run without a checkpoint is refused before"
        # Imported late: it takes most of a second, which other runs need not wait for.
        from dlrm.train.warm_start.optimizer_state import load_optimizer_state

        load_optimizer_state(parts, checkpoint, resolved.sample_scale, ranks)
    num_new = sum(after - before for before, after in grown.values())
    reporter.event(
        "warm_started",
        f"from {source.path}: {f'{len(grown)} table(s) have {num_new:,} new rows' if grown else 'no table has grown'}; "
        f"the optimizers {'continue with their state' if warm_start.optimizer_state else 'start fresh'}",
        optimizer_state=warm_start.optimizer_state,
        tables={name: {"rows_before": before, "rows_after": after} for name, (before, after) in grown.items()},
        **{"from": warm_start.source},
    )
    _report_blend(source, resolved, reporter)


def _report_blend(source: TrainedModel, resolved: ResolvedJob, reporter: Reporter) -> None:
    """Report that the run does without its source's logistic regression, if the source is blended with one."""
    share = read_record(source).first_order_share
    if share is None:
        return
    blend = resolved.job.run.blend
    own = "not blended" if blend == "none" else "blended with a new one"
    reporter.event(
        BLEND_LEFT_OUT,
        f"the logistic regression in the model in {source.path}, {share:.1f} of its logit, is left out: this run "
        f'starts from the trained part alone, and its own model is {own} (run.blend is "{blend}")',
        share=share,
    )


def _check_whole(source: TrainedModel) -> None:
    try:
        check_files(source.path)
    except ModelError as error:
        raise DataError(str(error), field=FIELD) from None


def _check_fits(source: TrainedModel, resolved: ResolvedJob, dataset: Dataset) -> dict[str, tuple[int, int]]:
    """Compare tables with the data: the rows before and after of every table that has grown.

    Raises DataError if ids have another meaning.
    """
    if dataset.encoders is not None and dataset.directory is not None:
        encoders, directory = dataset.encoders, dataset.directory
        if dataset.growing is not None:
            # Later files extend these.
            directory = dataset.growing.first_directory
            encoders = open_encoders(directory)
        check_extends(encoders, open_base(source.path), directory, describe_extension(resolved))
    model_rows = read_record(source).table_rows
    sizes = {feature.name: feature.num_ids for feature in dataset.schema.tables}
    for name in {**model_rows, **sizes}:
        _check_table(name, model_rows.get(name), sizes.get(name), source)
    return {name: (before, sizes[name]) for name, before in model_rows.items() if before != sizes[name]}


def _check_table(name: str, before: int | None, after: int | None, source: TrainedModel) -> None:
    """Raise DataError if a table does not fit. before, after: its rows in the model and in the data, or None."""
    if before is None:
        fault = f"the data has a column {name}, but the model has no table of that name"
    elif after is None:
        fault = f"the model has a table {name}, but the data has no column of that name"
    elif after < before:
        fault = f"the table {name} has {before:,} rows in the model, but the data has only {after:,} ids"
    else:
        return
    valid = "a model with the same columns, whose ids the data extends; or no run.warm_start, for a new model"
    raise DataError(fault, source.path, field=FIELD, valid=valid)


@torch.no_grad()
def _copy_weights(parts: Parts, model: Path) -> None:
    """Copy the tables' first rows and all dense parameters from the directory `model`, which is intact and fits.

    Rows of a table that the model does not have stay as they were drawn.
    """
    with safe_open(model / WEIGHTS, framework="pt") as weights:
        for shard in parts.tables.list_shards():
            _copy_rows(weights.get_slice(f"tables.{shard.spec.table.name}.weight"), shard)
        for name, parameter in parts.model.state_dict().items():
            parameter.copy_(weights.get_tensor(f"dense.{name}"))


def _copy_rows(saved: Any, shard: Shard) -> None:
    """Copy the rows of one shard. saved: the whole table, as safetensors slices it."""
    block = shard.spec.block
    end_row = min(saved.get_shape()[0], block.first_row + block.num_rows)
    for start in range(block.first_row, end_row, ROWS_PER_READ):
        end = min(start + ROWS_PER_READ, end_row)
        rows = slice(start - block.first_row, end - block.first_row)
        shard.weights[rows].copy_(to_stored(saved[start:end, shard.spec.columns], shard.spec.dtype))
