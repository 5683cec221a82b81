"""Tasks of a model with several labels, and how they share it."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from dlrm.config.base import FALSE_IS_NULL, Config, Positive, fill_defaults, refuse_foreign_setting
from dlrm.config.data import TABLE_FORMATS, DataConfig
from dlrm.config.errors import invalid
from dlrm.config.run import RunSpec
from dlrm.config.schema import ColumnName, LabelColumn, LabelKind

TaskName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,40}$")]
Width = Annotated[int, Field(ge=1, le=65536)]

_SETTINGS: dict[str, dict[str, Any]] = {
    "shared_bottom": {},
    "mmoe": {"num_experts": 8},
    "ple": {"num_experts": 2, "num_task_experts": 2, "num_levels": 2},
}
"""Fields that only some methods have, with their defaults; for mmoe the paper's."""


class TaskConfig(Config):
    """A task of a model, and the label to learn it from."""

    name: TaskName
    """Name of the task, in metrics such as `buy.auc` and in columns of predictions."""
    label: ColumnName | None = None
    """Column of its label, one of data.schema.further_labels. The first task has null: it reads data.schema.label, and
    it chooses the best model."""
    kind: LabelKind = "binary"
    """Kind of prediction. binary: the probability of label 1, by the log-loss; regression: the mean of the label, by
    half of the squared error. The first task is binary."""
    weight: Positive = 1.0
    """Factor of its loss in the sum over tasks."""
    given: Annotated[TaskName | None, FALSE_IS_NULL] = None
    """Earlier binary task that must be 1 for this one to be 1, as a click for a purchase. The prediction is then the
    product of the probabilities of both, and its loss is taken over all rows (ESMM, Ma et al. 2018, arXiv 1804.07931):
    where the earlier label is 0, so is this one. null: the task stands alone."""


class TaskSharingConfig(Config):
    """Layers that tasks share, and the weighting of their losses.

    A field of the chosen method that is left out or null gets its default; a field that the method does not have is
    null.
    """

    method: Literal["shared_bottom", "mmoe", "ple"] = "shared_bottom"
    """Layers between the interaction and the towers. shared_bottom: one perceptron for all tasks (Caruana 1997). mmoe:
    experts, mixed by a gate for each task (Ma et al. 2018). ple: levels of shared experts and of experts for each task
    alone (Tang et al. 2020). Every expert has the widths of top_mlp but the last."""
    num_experts: int | None = Field(default=None, ge=1, le=256)
    """Number of experts that all tasks share, on each level; default 8 in mmoe, 2 in ple."""
    num_task_experts: int | None = Field(default=None, ge=1, le=256)
    """Number of experts that each task has for itself in ple, on each level; default 2."""
    num_levels: int | None = Field(default=None, ge=1, le=16)
    """Number of levels of experts in ple; default 2."""
    tower_mlp: list[Width] = Field(default=[], max_length=32)
    """Widths of the hidden layers of each task's tower, which ends in the logit; empty: a linear layer alone."""
    loss_weighting: Literal["fixed", "uncertainty"] = "fixed"
    """Weighting of the losses. fixed: by the weight of each task. uncertainty: exp(-s) loss + s / 2 with a trained
    number s for each task, times that weight (Kendall et al. 2018, arXiv 1705.07115)."""

    @model_validator(mode="before")
    @classmethod
    def _fill_settings(cls, document: Any) -> Any:
        return fill_defaults(document, lambda fields: _SETTINGS.get(str(fields.get("method")), {}))

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        refuse_foreign_setting(self, "method", _SETTINGS)
        return self


def check_tasks(tasks: Sequence[TaskConfig]) -> None:
    """Raise an error that names the field of the first task at fault, if there is one."""
    earlier: dict[str, TaskConfig] = {}
    for number, task in enumerate(tasks):
        if task.name in earlier:
            raise invalid(f"tasks.{number}.name", f"{task.name!r} is a task already", "a different name for each task")
        if number == 0:
            for field, is_wrong, valid in (
                ("label", task.label is not None, "null: the first task reads data.schema.label"),
                ("kind", task.kind != "binary", '"binary", since the first task chooses the best model'),
                ("given", task.given is not None, "null, since there is no earlier task"),
            ):
                if is_wrong:
                    raise invalid(f"tasks.0.{field}", "is not for the first task", valid)
        elif task.label is None:
            raise invalid(f"tasks.{number}.label", "is missing", "a column of data.schema.further_labels")
        if task.given is not None:
            _check_given(number, task, earlier)
        earlier[task.name] = task


def _check_given(number: int, task: TaskConfig, earlier: dict[str, TaskConfig]) -> None:
    binary = [name for name, other in earlier.items() if other.kind == "binary"]
    if task.kind != "binary":
        message = "a product of probabilities is one of binary tasks"
        raise invalid(f"tasks.{number}.given", message, 'null, or kind "binary"')
    if task.given not in binary:
        message = f"{task.given!r} is no earlier binary task"
        raise invalid(f"tasks.{number}.given", message, " or ".join(["null", *binary]))


def find_unlabelled_task(
    tasks: Sequence[TaskConfig], labels: Sequence[LabelColumn]
) -> tuple[int, TaskConfig, list[str]] | None:
    """Find the first task whose label is none of `labels`, or of another kind; None if there is none.

    Returns its number, the task, and the names of the labels of its kind. The first of `tasks` has a label of its own.
    """
    kinds = {label.name: label.kind for label in labels}
    for number, task in enumerate(tasks[1:], start=1):
        if kinds.get(task.label or "") != task.kind:
            return number, task, [name for name, kind in kinds.items() if kind == task.kind]
    return None


def find_parents(tasks: Sequence[TaskConfig]) -> list[int | None]:
    """Find the number of the task that each task is given; None if it stands alone."""
    names = [task.name for task in tasks]
    return [None if task.given is None else names.index(task.given) for task in tasks]


def check_labels(tasks: Sequence[TaskConfig], data: DataConfig, run: RunSpec) -> None:
    """Raise ValueError if the data lacks a label of several tasks, or if a setting is for one binary label."""
    if data.format in ("synthetic", "criteo_tsv"):
        message = f"reads further labels, and format {data.format} has one"
        others = " or ".join(f'"{name}"' for name in (*TABLE_FORMATS, "packed"))
        raise invalid("model.tasks", message, f"null, or data.format {others}")
    schema = data.table_schema
    if schema is not None and (found := find_unlabelled_task(tasks, schema.further_labels)):
        number, task, fitting = found
        message = f"{task.label!r} is no {task.kind} label of data.schema.further_labels"
        valid = ", ".join(fitting) or f'a label there, with kind "{task.kind}"'
        raise invalid(f"model.tasks.{number}.label", message, valid)
    for field, value, *off in (
        ("run.label_smoothing", run.label_smoothing, 0.0),
        ("run.recalibrate", run.recalibrate, None),
        ("run.sharpness", run.sharpness, None),
        ("run.blend", run.blend, "none", "auto"),
        ("data.negative_sampling", data.negative_sampling, None),
    ):
        if value not in off:
            message = "is for one binary label, and model.tasks has further ones"
            raise invalid(field, message, f"{json.dumps(off[0])}, or a single task")
