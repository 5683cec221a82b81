"""The file in which a blend and a recalibration are handed to the run."""

from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import Field
from safetensors import safe_open
from safetensors.torch import save_file

from dlrm.config import ModelConfig
from dlrm.data.rows import DataSchema
from dlrm.exported_model.layout import Recalibration
from dlrm.model import FirstOrder
from dlrm.record import Record

_REPORT = "report"
"""Key of the report in the metadata of the file."""


class BlendReport(Record):
    """Report on the blend of a trained model, and on its recalibration."""

    message: str
    """Sentence that says how the model is blended, or why it is left as it was trained; empty if no blend is asked
    for."""
    share: float | None = None
    """Share of logistic regression in the logit; 0 if the model is best alone, null if none could be chosen."""
    num_train_rows: int | None = None
    """Number of rows that logistic regression was fitted on last; null without a share."""
    recalibration: Recalibration | None = None
    """Map of the logits; null if there is none."""
    recalibration_message: str = ""
    """Sentence that says what the recalibration does, or why there is none; empty if none is asked for."""
    metrics: dict[str, float | None] = Field(default={})
    """Metrics of the result by name, on the evaluation rows and the sample of training rows, and the log-loss of a
    blend on the validation rows; empty if the model is left as it was trained."""


@dataclass(frozen=True)
class RefinedOutput:
    """All that the program has made."""

    report: BlendReport
    first_order: FirstOrder | None = None
    """Part that the model is blended with; None if it is not blended."""


def write_blend(path: Path, output: RefinedOutput) -> None:
    """Write `output` to a file. Raises OSError and SafetensorError, such as on a full disk."""
    weights = {} if output.first_order is None else output.first_order.state_dict()
    save_file(weights, path, {_REPORT: output.report.model_dump_json()})


def read_blend(path: Path, config: ModelConfig, schema: DataSchema) -> RefinedOutput:
    """Read what `write_blend` has written for a model of `config` on rows of `schema`.

    Raises OSError, SafetensorError, and ValueError if it is no such file.
    """
    with safe_open(path, framework="pt") as file:
        report = BlendReport.model_validate_json((file.metadata() or {}).get(_REPORT, ""))
        weights: dict[str, torch.Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if not report.share:
        return RefinedOutput(report, None)
    table_rows = {feature.name: feature.num_ids for feature in schema.features}
    first_order = FirstOrder(schema.num_dense, table_rows, config.pooling, report.share)
    first_order.load_state_dict(weights, assign=True)
    return RefinedOutput(report, first_order)
