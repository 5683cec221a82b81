"""Libraries of operators that were built with the package, and why one cannot be used."""

import json
from functools import cache
from pathlib import Path

MEND = "pip install --no-build-isolation --no-deps -e ."
"""Builds them anew, in a checkout and with its virtual environment."""
TABLES = Path(__file__).parent


def load_library(name: str, directory: Path = TABLES) -> bool:
    """Register the operators of `_name.so` in `directory` with torch, and return whether they are there."""
    return why_not(name, directory) is None


@cache
def why_not(name: str, directory: Path = TABLES) -> str | None:
    """Say why the operators cannot be used, and what to do; None where they can."""
    # Late: whether they are built is asked where no torch is, too.
    import torch

    reason = why_not_built(name, torch.__version__, directory)
    if reason is not None:
        return reason
    try:
        torch.ops.load_library(directory / f"_{name}.so")
    except OSError as error:
        return f"the operators of {name} cannot be loaded ({error}): {MEND}"
    return None


def why_not_built(name: str, torch_version: str, directory: Path = TABLES) -> str | None:
    """Say why there are no operators for this version of torch, and what to do; None where there are.

    Imports no torch.
    """
    library = directory / f"_{name}.so"
    record = _read(library.with_suffix(".json"))
    if error := record.get("error"):
        return f"the operators of {name} could not be built ({error}); once that is mended: {MEND}"
    if not library.exists() or "torch" not in record:
        return f"the operators of {name} were not built: torch must be there when the package is installed; {MEND}"
    if record["torch"] != torch_version:
        built = f"were built for torch {record['torch']}, and this is torch {torch_version}"
        return f"the operators of {name} {built}: {MEND}"
    return None


def _read(path: Path) -> dict[str, str]:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {}
