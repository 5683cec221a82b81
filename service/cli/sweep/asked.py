"""Keys of the trials that count by the document of a sweep, beside its results, which earlier documents added to."""

import json
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from dlrm.record import write_atomically
from service.cli.errors import BadInputError

ASKED_FILE_NAME = "asked.json"
"""Name of the file with the keys, in the directory of the sweep."""


class _Asked(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    keys: list[str]


def write_asked(directory: Path, keys: Iterable[str]) -> None:
    """Write the keys of the trials that count. Raises BadInputError where it cannot."""
    path = directory / ASKED_FILE_NAME
    try:
        write_atomically(path, json.dumps({"keys": sorted(keys)}, indent=0) + "\n")
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from None


def read_asked(directory: Path) -> frozenset[str] | None:
    """Read the keys of the trials that count; None where there is no file: an earlier version wrote none.

    Raises BadInputError for a file of another kind.
    """
    path = directory / ASKED_FILE_NAME
    try:
        return frozenset(_Asked.model_validate_json(path.read_bytes()).keys)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from None
    except ValidationError:
        valid = "as `dlrm sweep` writes it; without the file all results count"
        raise BadInputError(f"{path}: has no list of keys (valid: {valid})") from None
