"""Libraries of native operators that were built with the package, and the reason where one cannot be used."""

import json
from functools import cache
from pathlib import Path

REBUILD_COMMAND = "pip install --no-build-isolation --no-deps -e ."
"""Command that rebuilds the operators, in a checkout and with its virtual environment."""
TABLES_DIRECTORY = Path(__file__).parent


def load_library(name: str, directory: Path = TABLES_DIRECTORY) -> bool:
    """Register the operators of `_name.so` in `directory` with torch, and return whether that worked."""
    return find_load_error(name, directory) is None


@cache
def find_load_error(name: str, directory: Path = TABLES_DIRECTORY) -> str | None:
    """Return why the operators cannot be used, and what to do; None if they can."""
    # Imported late: `find_build_error` is also called where torch is not installed.
    import torch

    reason = find_build_error(name, torch.__version__, directory)
    if reason is not None:
        return reason
    try:
        torch.ops.load_library(directory / f"_{name}.so")
    except OSError as error:
        return f"the native operators for {name} cannot be loaded ({error}); to rebuild them: {REBUILD_COMMAND}"
    return None


def find_build_error(name: str, torch_version: str, directory: Path = TABLES_DIRECTORY) -> str | None:
    """Return why there are no operators for this version of torch, and what to do; None if there are.

    Imports no torch.
    """
    library = directory / f"_{name}.so"
    record = _read_record(library.with_suffix(".json"))
    if error := record.get("error"):
        return f"the native operators for {name} could not be built ({error}); fix that, then run: {REBUILD_COMMAND}"
    if not library.exists() or "torch" not in record:
        why = "torch must be installed before this package"
        return f"the native operators for {name} were not built: {why}; to build them: {REBUILD_COMMAND}"
    if record["torch"] != torch_version:
        built = f"were built for torch {record['torch']}, and this is torch {torch_version}"
        return f"the native operators for {name} {built}; to rebuild them: {REBUILD_COMMAND}"
    return None


def _read_record(path: Path) -> dict[str, str]:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {}
