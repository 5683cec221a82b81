"""Check whether a job can start from the model that `run.warm_start` names."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from dlrm.config.data import DataConfig
from dlrm.config.errors import FieldError
from dlrm.config.job import JobSpec
from dlrm.config.model import SETTING_FIELDS, ModelConfig
from dlrm.config.table_dims import find_dim_faults
from dlrm.config.tasks import TaskConfig

_SOURCE, _OPTIMIZER_STATE = "run.warm_start.from", "run.warm_start.optimizer_state"


def find_warm_start_faults(
    job: JobSpec, model: Mapping[str, Any], data: Mapping[str, Any], identity: Mapping[str, Any] | None
) -> list[FieldError]:
    """Return every field in which `job` does not fit the model, as far as this can be checked without its data.

    model, data: sections of the job that trained the model. identity: of that job, from its last checkpoint;
    None if there is no checkpoint.
    """
    try:
        old_model, old_data = ModelConfig.model_validate(model), DataConfig.model_validate(data)
    except ValidationError as error:
        field = ".".join(map(str, error.errors()[0]["loc"]))
        return [FieldError(_SOURCE, f"the model's settings are damaged at {field}", "a model that a run has written")]
    # The fields of an architecture are filled in once it is decided.
    open_fields = SETTING_FIELDS if job.model.architecture == "auto" else ()
    faults = [
        _make_fault(f"model.{name}", value, old)
        for name in ModelConfig.model_fields
        if (value := getattr(job.model, name)) not in ("auto", old := getattr(old_model, name))
        and not (value is None and name in open_fields)
        and name not in ("tasks", "table_dims")
    ]
    faults += _find_task_faults(job.model.tasks, old_model.tasks)
    faults += find_dim_faults(job.model.table_dims, old_model.table_dims, old_model.embedding_dim)
    faults += _find_data_faults(job.data, old_data)
    if job.run.warm_start is not None and job.run.warm_start.optimizer_state:
        faults += _find_optimizer_faults(job, identity)
    return faults


def replace_warm_start_source(job: JobSpec, directory: str) -> JobSpec:
    """Return a `job` with a warm start, with `run.warm_start.from` replaced by the resolved directory."""
    assert job.run.warm_start is not None, "the job has a warm start"
    warm_start = job.run.warm_start.model_copy(update={"source": directory})
    return job.model_copy(update={"run": job.run.model_copy(update={"warm_start": warm_start})})


def _make_fault(field: str, value: Any, old: Any, remedy: str = "") -> FieldError:
    message = f"is {_format(value)}, but {_format(old)} in the model that the run starts from"
    return FieldError(field, message, f"{_format(old)}{remedy}")


def _format(value: Any) -> str:
    """Format a value as a JSON document has it."""
    return json.dumps(to_jsonable_python(value), ensure_ascii=False)


def _find_task_faults(tasks: Sequence[TaskConfig] | None, old: Sequence[TaskConfig] | None) -> list[FieldError]:
    remedy = "; or train a model of other tasks anew, without run.warm_start"
    if tasks is None or old is None or len(tasks) != len(old):
        names, old_names = (None if these is None else [task.name for task in these] for these in (tasks, old))
        return [] if names == old_names else [_make_fault("model.tasks", names, old_names, remedy)]
    return [
        _make_fault(f"model.tasks.{number}.{field}", value, before, remedy)
        for number, pair in enumerate(zip(tasks, old, strict=True))
        for field in TaskConfig.model_fields
        for value, before in [[getattr(task, field) for task in pair]]
        if value != before
    ]


def _find_data_faults(data: DataConfig, old: DataConfig) -> list[FieldError]:
    if data.synthetic is None and old.synthetic is None:
        return []
    if data.synthetic is None or old.synthetic is None:
        old_rows = "files" if old.synthetic is None else "a synthetic log, whose ids mean nothing in other data"
        message = f"is {data.format}, but the model that the run starts from was trained on {old_rows}"
        return [FieldError("data.format", message, f'"{old.format}"')]
    if data.synthetic.num_ids < old.synthetic.num_ids:
        message = f"is {data.synthetic.num_ids}: the tables of the model that the run starts from are larger"
        return [FieldError("data.synthetic.num_ids", message, f"{old.synthetic.num_ids} or more")]
    return []


def _find_optimizer_faults(job: JobSpec, identity: Mapping[str, Any] | None) -> list[FieldError]:
    if identity is None:
        message = "there is no checkpoint to load it from: a model alone contains no optimizer state"
        return [FieldError(_OPTIMIZER_STATE, message, "false, or a run in `from` that kept its last checkpoint")]
    stated: dict[str, Any] = {
        "dense_optimizer.name": job.dense_optimizer.name,
        "table_optimizer.name": job.table_optimizer.name,
    }
    if job.dense_optimizer.name == identity.get("dense_optimizer.name"):
        # Factors of the sides up to it are state; null for optimizers without such factors.
        stated["dense_optimizer.max_precondition_dim"] = job.dense_optimizer.max_precondition_dim
    return [
        FieldError(
            field,
            f"is {_format(value)}, but {_format(identity.get(field))} in the run that the optimizer state comes from",
            f"{_format(identity.get(field))}, or {_OPTIMIZER_STATE} = false",
        )
        for field, value in stated.items()
        if identity.get(field) != value
    ]
