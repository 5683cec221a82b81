"""A model as a directory for the Hugging Face Hub: the files of the model, and its card as README.md.

The card begins with metadata in YAML, from which the Hub makes the page of a model and finds it. Its fields are
fields of `ModelCardData` in huggingface_hub. The license is left to whoever publishes the model.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlrm.exported_model.card import describe_held_out
from dlrm.exported_model.card_metrics import METRICS_SHOWN
from dlrm.exported_model.export import ExportError
from dlrm.exported_model.layout import CARD, CONFIG, ENCODERS, HUB_CARD, METRICS, WEIGHTS, SavedConfig
from dlrm.exported_model.load import check_files
from dlrm.exported_model.write_whole import write_whole

_TASK = "tabular-classification"
_TAGS = ("click-through-rate", "recommendation")
_TYPES = {"auc": "roc_auc"}
"""Names that the Hub has for metrics with another name here."""


def write_hub_directory(model: Path, directory: Path) -> tuple[SavedConfig, dict[str, float | None]]:
    """Write the directory for the Hub, whole or not at all; return the settings and the metrics of the model.

    It is a model directory like `model`, so that everything that reads a model reads it. Raises ModelError if `model`
    is none, and ExportError if the directory cannot be written.
    """
    check_files(model)
    config = SavedConfig.model_validate_json((model / CONFIG).read_bytes())
    metrics = json.loads((model / METRICS).read_bytes())
    card = (model / CARD).read_text()
    try:
        with write_whole(directory) as part:
            for name in (WEIGHTS, CONFIG, METRICS):
                shutil.copyfile(model / name, part / name)
            if (model / ENCODERS).is_dir():
                shutil.copytree(model / ENCODERS, part / ENCODERS, copy_function=shutil.copyfile)
            (part / CARD).write_text(card)
            (part / HUB_CARD).write_text(f"{_render_metadata(config, metrics)}\n{card}")
    except OSError as error:
        raise ExportError(f"{directory}: the model cannot be written: {error}") from error
    return config, metrics


def _render_metadata(config: SavedConfig, metrics: Mapping[str, float | None]) -> str:
    """Render the metadata; its values are in JSON, which is YAML as well."""
    fields: dict[str, Any] = {
        "library_name": "dlrm-service",
        "pipeline_tag": _TASK,
        "tags": [*dict.fromkeys(("dlrm", config.model.architecture, *_TAGS))],
    }
    measured = [
        {"type": _TYPES.get(name, name), "name": words, "value": metrics[name]}
        for name, words in METRICS_SHOWN.items()
        if metrics.get(name) is not None
    ]
    if measured:
        name = f"held-out rows ({describe_held_out(config)})"
        if config.compression is not None and config.compression.is_measured_on_data:
            name = "rows of files given to dlrm compress"
        rows = {"type": "click-log", "name": name}
        result = {"task": {"type": _TASK}, "dataset": rows, "metrics": measured}
        fields["model-index"] = [{"name": config.training["name"], "results": [result]}]
    return "\n".join(["---", *(f"{name}: {json.dumps(value)}" for name, value in fields.items()), "---", ""])
