"""Jobs that go on from the model of another job: its retraining after pruning, and its cooldown."""

from collections.abc import Sequence
from typing import Any

from dlrm.config.base import MIN_POSITIVE
from dlrm.config.cooldown import list_averaging_faults
from dlrm.config.errors import ConfigError, FieldError, parse_document
from dlrm.config.job import JobConfig, JobSpec

RETRAINING_RATE = 0.1
"""Learning rate of a retraining as a multiple of the job's."""


def make_retraining(job: JobConfig, source: str, share: float, fraction: float) -> JobConfig:
    """Return the job that prunes a share of the dense matrices of the model of `job`, and then trains on.

    The dense part has the schedule of `job` over fewer samples, at a tenth of its rate (Han et al. 2015, arXiv
    1506.02626, section 4). Tables stay as they are: in one more pass they would learn their rows by heart. source:
    directory of the run of `job`. fraction: length of the retraining as a share of the job's. Raises ConfigError.
    """
    document = _continue(job, source, fraction)
    document["dense_optimizer"]["learning_rate"] = job.dense_optimizer.learning_rate * RETRAINING_RATE
    # Too small to move a weight.
    document["table_optimizer"]["learning_rate"] = MIN_POSITIVE
    document["run"] |= {"yardsticks": "none", "sharpness": None}
    pruned = share if job.pruning is None else max(share, job.pruning.share)
    document["pruning"] = {"share": pruned, "from_fraction": 0.0, "until_fraction": 0.0}
    return parse_document(JobConfig, document)


def make_cooldown_job(job: JobSpec, source: str, fraction: float) -> JobSpec:
    """Return the job that trains the model of `job` on, while the dense rate falls linearly to zero.

    It ends a run at a constant rate (Hägele et al. 2024, arXiv 2405.18392), but begins with the first rows again.
    source: id of `job`. fraction: length of the cooldown as a share of the job's. Raises ConfigError if the rates of
    `job` are not at their peak at its end.
    """
    faults = list_averaging_faults(job)
    for name, optimizer in (("dense_optimizer", job.dense_optimizer), ("table_optimizer", job.table_optimizer)):
        if optimizer.schedule.decay != "constant":
            message = f'the rate has fallen at the end of decay "{optimizer.schedule.decay}"'
            faults.append(FieldError(f"{name}.schedule.decay", message, 'a job with decay "constant"'))
    document = _continue(job, source, fraction, faults)
    document["dense_optimizer"]["schedule"] |= {"warmup_fraction": 0.0, "decay": "polynomial", "power": 1.0}
    document["table_optimizer"]["schedule"] |= {"warmup_fraction": 0.0}
    if job.pruning is not None:
        document["pruning"] |= {"from_fraction": 0.0, "until_fraction": 0.0}
    return parse_document(JobSpec, document)


def _continue(job: JobSpec, source: str, fraction: float, faults: Sequence[FieldError] = ()) -> dict[str, Any]:
    """Return the document of a job that starts from the model of `job`, and leaves its last model.

    The batch is the last one of `job`. faults: those that are known already. Raises ConfigError with them, and if
    length, batch or rate of `job` is not in its document.
    """
    schedule = job.dense_optimizer.schedule
    is_in_time = job.data.order == "time"
    open_faults = [
        FieldError(field, message, valid)
        for field, is_open, message, valid in (
            ("run.epochs", job.run.epochs == "auto", "is auto, and has no length to take a share of", "a number"),
            ("batch.global_size", job.batch.global_size == "auto", "would be another in a shorter run", "a number"),
            ("batch.growth", job.batch.growth is not None, "leaves the last batch to the run", "null"),
            ("data.order", is_in_time, "lets each row come once, in its time", '"shuffled"'),
            ("dense_optimizer.schedule.autowu", schedule.autowu is not None, "leaves the rate to the run", "null"),
            (
                "dense_optimizer.schedule.scaling",
                schedule.follows_gain,
                "leaves the rate to the run",
                "another scaling",
            ),
        )
        if is_open
    ]
    # The first is one of the faults, and says that the length below is a number.
    if job.run.epochs == "auto" or open_faults or faults:
        raise ConfigError([*faults, *open_faults])
    document = job.model_dump(mode="json")
    document["batch"] |= {"schedule": [], "rewarmup": False, "growth": None}
    document["run"] |= {
        "epochs": job.run.epochs * fraction,
        "warm_start": {"from": source, "optimizer_state": True},
        "reset_tables_each_epoch": False,
        "eval_every_fraction": 1.0,
        "keep_model": "last",
        "patience": None,
        "target_auc": None,
    }
    return document
