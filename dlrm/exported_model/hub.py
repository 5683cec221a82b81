"""A model as a directory for the Hugging Face Hub: the files of the model, and its card as README.md.

The card begins with metadata in YAML, from which the Hub makes the page of a model and finds it. Its fields are
fields of `ModelCardData` in huggingface_hub. The license is left to whoever publishes the model. Settings and cards are
without what is private, see `dlrm.exported_model.published`; so are changes that somebody made to the model's own card.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlrm.data.encode.encoders import Encoders
from dlrm.exported_model.card import describe_held_out, name_measured_rows
from dlrm.exported_model.card_metrics import METRICS_SHOWN
from dlrm.exported_model.export import ExportError
from dlrm.exported_model.layout import CARD, CONFIG, ENCODERS, HUB_CARD, METRICS, WEIGHTS, SavedConfig
from dlrm.exported_model.load import check_files
from dlrm.exported_model.published import make_public_config, render_public_card
from dlrm.exported_model.write_whole import write_whole
from dlrm.record import NUM_GROUPED_ROWS, describe_further_figures

_TASK = "tabular-classification"
_TAGS = ("click-through-rate", "recommendation")
_TYPES = {"auc": "roc_auc"}
"""Names that the Hub has for metrics with another name here."""
_COUNTS = ("num_rows", NUM_GROUPED_ROWS)


def write_hub_directory(model: Path, directory: Path) -> tuple[SavedConfig, dict[str, float | None]]:
    """Write the directory for the Hub, whole or not at all; return the settings and the metrics of the model.

    It is a model directory like `model`, so that everything that reads a model reads it. Raises ModelError if `model`
    is none, and ExportError if the directory cannot be written.
    """
    check_files(model)
    public = make_public_config(SavedConfig.model_validate_json((model / CONFIG).read_bytes()))
    metrics = json.loads((model / METRICS).read_bytes())
    encoders = None if public.data.format == "synthetic" else Encoders.load(model / ENCODERS)
    card = render_public_card(public, encoders, metrics)
    try:
        with write_whole(directory) as part:
            (part / CONFIG).write_text(public.model_dump_json(indent=1))
            for name in (WEIGHTS, METRICS):
                shutil.copyfile(model / name, part / name)
            if (model / ENCODERS).is_dir():
                shutil.copytree(model / ENCODERS, part / ENCODERS, copy_function=shutil.copyfile)
            (part / CARD).write_text(card)
            (part / HUB_CARD).write_text(f"{_render_metadata(public, metrics)}\n{card}")
    except OSError as error:
        raise ExportError(f"{directory}: the model cannot be written: {error}") from error
    return public, metrics


def _render_metadata(config: SavedConfig, metrics: Mapping[str, float | None]) -> str:
    """Render the metadata; its values are in JSON, which is YAML as well."""
    fields: dict[str, Any] = {
        "library_name": "dlrm-service",
        "pipeline_tag": _TASK,
        "tags": [*dict.fromkeys(("dlrm", config.model.architecture, *_TAGS))],
    }
    shown = METRICS_SHOWN | describe_further_figures(metrics)
    measured = [
        {"type": _name_type(name), "name": words, "value": metrics[name]}
        for name, words in shown.items()
        if metrics.get(name) is not None and not name.endswith(_COUNTS)
    ]
    if measured:
        name = name_measured_rows(config)
        if not config.is_measured_on_given_files:
            name = f"{name} ({describe_held_out(config)})"
        rows = {"type": "click-log", "name": name}
        result = {"task": {"type": _TASK}, "dataset": rows, "metrics": measured}
        fields["model-index"] = [{"name": config.training["name"], "results": [result]}]
    return "\n".join(["---", *(f"{name}: {json.dumps(value)}" for name, value in fields.items()), "---", ""])


def _name_type(name: str) -> str:
    """Return the type of a metric, the same for every task."""
    figure = name.rpartition(".")[2]
    return _TYPES.get(figure, figure)
