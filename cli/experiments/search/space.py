"""Space that tuning searches: settings around the job's own."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.experiments.trials.fields import Settings, is_open, set_fields
from dlrm.config import BATCH_FIELD, ConfigError, JobConfig, parse_job

DENSE_RATE, TABLE_RATE = "dense_optimizer.learning_rate", "table_optimizer.learning_rate"
EMBEDDING_DIM = "model.embedding_dim"
ARCHITECTURE, TOP_MLP, BOTTOM_MLP = "model.architecture", "model.top_mlp", "model.bottom_mlp"
TRIED_ARCHITECTURES = ["dlrm", "dcn_v2", "gdcn", "finalmlp", "masknet"]
"""Names of dlrm, the fastest one, and of those better on flights (benchmarks/experiments.md)."""
RATE_FACTORS = (0.3, 3.0)
"""Bounds of a learning rate, as factors on the untuned one."""


@dataclass(frozen=True)
class LogUniform:
    """Field with a positive number, drawn so that its logarithm is uniform."""

    field: str
    low: float
    high: float

    def draw(self, generator: random.Random) -> float:
        """Draw a value, with three significant digits."""
        return float(f"{math.exp(generator.uniform(math.log(self.low), math.log(self.high))):.3g}")


@dataclass(frozen=True)
class Choice:
    """Field with one of several values, each as likely as the others."""

    field: str
    values: Sequence[Any]

    def draw(self, generator: random.Random) -> Any:
        """Draw a value."""
        return generator.choice(self.values)


Parameter = LogUniform | Choice


def list_parameters(document: Mapping[str, Any], job: JobConfig, *, is_all: bool) -> list[Parameter]:
    """List what is tuned of a job.

    document: job document as written. job: the same job with everything decided. is_all: whether stated fields are
    tuned too. Values that the document cannot take, such as a batch not divisible by the ranks, are left out; so are
    fields with one value left.
    """
    parameters: list[Parameter] = []
    for parameter in _list_candidates(job):
        if not is_all and _is_stated(document, parameter.field):
            continue
        if isinstance(parameter, Choice):
            valid = [value for value in parameter.values if _is_valid(document, job, {parameter.field: value})]
            if len(valid) > 1:
                parameters.append(Choice(parameter.field, valid))
        else:
            parameters.append(parameter)
    return parameters


def draw_settings(
    parameters: Sequence[Parameter], document: Mapping[str, Any], job: JobConfig, seed: int, trial: int
) -> dict[str, Any]:
    """Draw the settings of a trial, the same ones for the same seed, number of the trial and parameters."""
    generator = random.Random(f"{seed}/{trial}")
    return complete({parameter.field: parameter.draw(generator) for parameter in parameters}, document, job)


def complete(settings: Settings, document: Mapping[str, Any], job: JobConfig) -> dict[str, Any]:
    """Return settings with the last width of a stated `bottom_mlp`, which must be the embedding dimension."""
    if EMBEDDING_DIM not in settings or is_open(document, BOTTOM_MLP):
        return dict(settings)
    return {**settings, BOTTOM_MLP: [*job.model.bottom_mlp[:-1], settings[EMBEDDING_DIM]]}


def _list_candidates(job: JobConfig) -> list[Parameter]:
    """List the whole space around the values of `job`. A run that starts from a trained model keeps its model."""
    low, high = RATE_FACTORS
    dense_rate, table_rate = job.dense_optimizer.learning_rate, job.table_optimizer.learning_rate
    size, model = job.batch.global_size, job.model
    training: list[Parameter] = [
        LogUniform(DENSE_RATE, low * dense_rate, high * dense_rate),
        LogUniform(TABLE_RATE, low * table_rate, high * table_rate),
        Choice(BATCH_FIELD, [size // 2, size, size * 2]),
    ]
    if job.run.warm_start is not None:
        return training
    halved = [max(width // 2, 1) for width in model.top_mlp[:-1]]
    architectures: list[Parameter] = [
        Choice(EMBEDDING_DIM, [model.embedding_dim // 2, model.embedding_dim, model.embedding_dim * 2]),
        Choice(ARCHITECTURE, TRIED_ARCHITECTURES),
        Choice(TOP_MLP, [model.top_mlp, [*halved, 1]]),
    ]
    return training + architectures


def _is_stated(document: Mapping[str, Any], field: str) -> bool:
    """Whether the document states the field, or one that fixes it."""
    return not is_open(document, field) or (field == EMBEDDING_DIM and not is_open(document, BOTTOM_MLP))


def _is_valid(document: Mapping[str, Any], job: JobConfig, settings: Settings) -> bool:
    try:
        parse_job(set_fields(document, complete(settings, document, job)))
    except ConfigError:
        return False
    return True
