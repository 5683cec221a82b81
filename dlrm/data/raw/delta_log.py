"""Copy of the log of a Delta table in a store, which the library then reads from this machine.

The library would look for credentials elsewhere than all other reading does.
"""

import re
import shutil
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.table_directory import TableDirectory

_COMMIT = re.compile(r"_delta_log/(\d{20})\.(?:json|checkpoint\..*)")
_CHECKPOINT = re.compile(r"_delta_log/(\d{20})\.checkpoint\.(?:\d{10}\.(\d{10})\.)?.*")
_BESIDE = re.compile(r"_delta_log/_sidecars/.*|(?:.*/)?deletion_vector_[^/]*\.bin")
"""Files that commits and checkpoints refer to."""
_NUM_REQUESTS = 16


def copy_log(directory: TableDirectory, version: int | None, target: Path) -> None:
    """Copy what opening a version needs, None for the newest: the log from the checkpoint before it on, and deletion
    vectors. Raises DataError and OSError if an object cannot be read."""
    objects = directory.list_objects()
    start = _find_checkpoint(objects, version)
    chosen = [name for name in objects if _is_needed(name, start)]
    with ThreadPoolExecutor(_NUM_REQUESTS) as pool:
        list(pool.map(lambda name: _copy(objects[name], target / name), chosen))


def _find_checkpoint(names: Iterable[str], version: int | None) -> int:
    """Find the version of the last complete checkpoint up to `version`; 0 if absent."""
    found = Counter((int(match[1]), int(match[2] or 1)) for match in map(_CHECKPOINT.fullmatch, names) if match)
    complete = (number for (number, num_parts), num_found in found.items() if num_found >= num_parts)
    return max((number for number in complete if version is None or number <= version), default=0)


def _is_needed(name: str, start: int) -> bool:
    # Stores take any text for a name, and the copy must stay in its directory.
    if name.startswith("/") or ".." in name.split("/"):
        return False
    commit = _COMMIT.fullmatch(name)
    return int(commit[1]) >= start if commit else _BESIDE.fullmatch(name) is not None


def _copy(file: DataFile, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with file.open() as source, target.open("wb") as written:
        shutil.copyfileobj(source, written)
