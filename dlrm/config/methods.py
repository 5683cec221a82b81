"""Training methods of a job: what its document changes of the plain training step."""

from typing import Any

from dlrm.config.job import JobConfig

_FIELDS = (
    "batch.schedule",
    "batch.rewarmup",
    "batch.growth",
    "augmentation",
    "variance_reduction",
    "preconditioner",
    "dense_optimizer.name",
    "dense_optimizer.nesterov",
    "dense_optimizer.max_gradient_norm",
    "dense_optimizer.schedule.scaling",
    "dense_optimizer.schedule.autowu",
    "pruning",
    "averaging",
    "dense_averaging",
    "run.label_smoothing",
    "run.sharpness",
)
"""Fields that change the plain step where they differ from their defaults."""


def list_methods(job: JobConfig) -> list[str]:
    """List the fields of `job` that change the plain training step, with their choice: "dense_averaging easgd"."""
    document, plain = job.model_dump(mode="json"), JobConfig.model_construct(data=job.data).model_dump(mode="json")
    values = ((field, _get(document, field)) for field in _FIELDS)
    return [
        f"{field}{_describe(value)}" for field, value in values if value and value not in ("none", _get(plain, field))
    ]


def _get(document: dict[str, Any], field: str) -> Any:
    for key in field.split("."):
        document = document[key]
    return document


def _describe(value: Any) -> str:
    match value:
        case {"name": choice} | {"method": choice}:
            return f" {choice}"
        case {"control": str(choice)}:
            return f" (control: {choice})"
        case str() | float():
            return f" {value}"
        case _:
            return ""
