"""Options and checks shared by the commands that score rows with a trained model."""

import importlib.util
from pathlib import Path
from typing import Annotated, Literal

import typer

from service.cli.errors import BadInputError, CommandError

_LIBRARIES = ("torch", "numpy", "polars", "pyarrow", "safetensors")
"""Modules that scoring imports."""

Format = Annotated[
    Literal["parquet", "csv", "criteo_tsv"] | None,
    typer.Option("--format", help="Format of DATA.", show_default="detected"),
]


def require_model(model: Path) -> None:
    """Raise BadInputError where `model` is not the directory of a model."""
    if not model.is_dir():
        raise BadInputError(f"{model}: no such directory (valid: the model/ directory of a run)")
    if (model / "model").is_dir():
        raise BadInputError(f"{model}: is the directory of a run; its model is {model / 'model'}")


def require_scorer() -> None:
    """Raise CommandError where a library that scoring needs is not installed."""
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(
            f"a model needs {', '.join(missing)}, not installed here: pip install 'dlrm-service[predict]', or, from "
            "the source tree, pip install --no-deps -r requirements/predict.txt"
        )
