"""Tables of metrics: one row for each step and evaluation, and levels of rows that summarise the steps of a bucket.

A job's rows of one attempt lie side by side, in the order of its steps, so that any part of a curve is one range.
"""

from typing import Any

from sqlalchemy import JSON, BigInteger, Column, Double, Integer, SmallInteger, String, Table

from service.database.base import Base

BUCKET_FACTOR = 16
"""Steps of a bucket of level 1, and buckets of a level that one of the next level holds."""
STEP_NUMBERS = (
    *("loss", "dense_learning_rate", "table_learning_rate", "samples_per_second"),
    *("noise_scale", "share_at_gamma", "share_at_one", "global_size", "dropped"),
)
"""Numbers of a step with smallest, largest and mean value of each bucket."""
STEP_COUNTS = ("num_steps", "num_samples", "num_run_samples")
"""Numbers of a step that grow or stay, so that a bucket has the last value alone."""
TIME = "time"
"""Time of a report in seconds since 1970; a bucket has the time of its last step."""
EVALUATION_NUMBERS = (
    *("auc", "auc_standard_error", "log_loss", "normalized_entropy", "calibration", "constant_log_loss"),
    *("best_possible_auc", "validation_log_loss", "validation_auc", "validation_calibration"),
    *("train_auc", "train_log_loss", "seconds"),
)
EVALUATION_OBJECTS = ("grouped", "tasks")
"""Numbers of an evaluation by names that depend on the job: JSON objects, whose curves have the last value alone."""
STATISTICS = ("min", "max", "mean", "count", "last")
"""Statistics of each number of a bucket; `count` is the number of values other than null."""


def _make_key(*names: str) -> list[Column[int]]:
    columns = [Column(name, BigInteger, primary_key=True, autoincrement=False) for name in names]
    return [Column("job_id", String(40), primary_key=True), *columns]  # pyright: ignore


def _make_reports(name: str, *columns: Column[Any]) -> Table:
    """Make the table of the reports of one kind, with a row for each step."""
    place = (Column("seq", BigInteger, nullable=False), Column(TIME, Double, nullable=False))
    return Table(name, Base.metadata, *_make_key("attempt", "step"), *place, *columns, sqlite_with_rowid=False)


STEPS = _make_reports(
    "steps",
    *(Column(name, BigInteger) for name in (*STEP_COUNTS, "global_size")),
    Column("dropped", SmallInteger, nullable=False),
    *(Column(name, Double) for name in STEP_NUMBERS[:-2]),
    Column("gsnr", JSON(none_as_null=True)),
)
"""Step reports as they came: the last one of each step of an attempt. Numbers that are not finite are null."""
EVALUATIONS = _make_reports(
    "evaluations",
    Column("num_rows", BigInteger),
    *(Column(name, Double) for name in EVALUATION_NUMBERS),
    *(Column(name, JSON(none_as_null=True)) for name in EVALUATION_OBJECTS),
)
"""Evaluation reports as they came: the last one of each step of an attempt."""
ROLLUPS = Table(
    "step_rollups",
    Base.metadata,
    *_make_key("attempt", "level", "bucket", "part"),
    Column("first_step", BigInteger, nullable=False),
    Column("last_step", BigInteger, nullable=False),
    Column("num_reports", Integer, nullable=False),
    *(
        Column(f"{name}_{statistic}", Integer if statistic == "count" else Double)
        for name in STEP_NUMBERS
        for statistic in STATISTICS
    ),
    *(Column(f"{name}_last", BigInteger) for name in STEP_COUNTS),
    Column("gsnr_last", JSON(none_as_null=True)),
    Column(f"{TIME}_last", Double),
    sqlite_with_rowid=False,
)
"""Steps of buckets, of BUCKET_FACTOR ** level steps each; bucket 0 begins with step 1. A bucket in which the valid
steps of its attempt end has two parts: part 0 up to the last valid step, part 1 after it."""
METRIC_TABLES = (STEPS, EVALUATIONS, ROLLUPS)
"""Tables with rows of a job that are removed in pieces, by ranges of their primary keys, before the job is."""
