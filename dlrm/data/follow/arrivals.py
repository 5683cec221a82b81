"""A look at a growing set of files: those ready to be read, late ones, and changed ones."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dlrm.config import DataConfig
from dlrm.config.follow import FollowConfig
from dlrm.config.patterns import make_natural_sort_key
from dlrm.data.errors import DataError
from dlrm.data.follow.ledger import TakenFile
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.files import find_files
from dlrm.data.raw.tables.table import TableFile


@dataclass(frozen=True)
class Arrivals:
    """One look at a growing set of files."""

    ready: Sequence[DataFile]
    """New complete files, in their order."""
    num_unsettled: int
    """Number of new files that are not complete yet, or that come after such a one."""
    late: Sequence[DataFile]
    """Ready files with names before the name of a file that was read."""
    changed: Sequence[DataFile]
    """Files that were read and have changed since, as they are now."""


def look(config: DataConfig, data_roots: Sequence[str] | None, taken: Sequence[TakenFile]) -> Arrivals:
    """Look for files that were not read yet. taken: those that were.

    A file is ready once it has not changed for a while, and so are all files before it. Raises DataError as
    `find_files` does, except for patterns without files, and for tables that list their files in a log.
    """
    assert config.follow is not None, "the files are followed"
    found = find_files(config.train, "data.train", data_roots, Path(), is_growing=True)
    if table := next((file for file in found if isinstance(file, TableFile)), None):
        message = "is of a table, whose files are replaced by others with the same rows"
        raise DataError(message, table.name, field="data.follow", valid="null, or files that are only added to")
    before = {file.name: file for file in taken}
    places = [number for number, file in enumerate(found) if file.name in before]
    new = [file for file in found if file.name not in before]
    late = [file for file in found[: max(places, default=0)] if file.name not in before]
    if config.follow.by == "time":
        new.sort(key=lambda file: (file.modified_ns, make_natural_sort_key(file.name)))
        late = []
    ready: list[DataFile] = []
    for file in new:
        if not _is_settled(file, config.follow):
            break
        ready.append(file)
    changed = [file for file in found if file.name in before and before[file.name] != TakenFile.from_file(file)]
    return Arrivals(ready, len(new) - len(ready), [file for file in late if file in ready], changed)


def _is_settled(file: DataFile, follow: FollowConfig) -> bool:
    changed_ns = max(file.modified_ns, file.changed_ns or 0)
    return time.time_ns() - changed_ns >= follow.settle_seconds * 1e9
