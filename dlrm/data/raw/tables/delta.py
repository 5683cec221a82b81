"""Files of one version of a Delta Lake table, by its log, without the rows of its deletion vectors.

The log of a table in a store is copied: the library, which reads it from this machine, would look for credentials
elsewhere than all other reading does.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from numpy.typing import NDArray

from dlrm.config.patterns import is_remote
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.tables.table import TableColumn, TableDirectory, TableFile, TableVersion, sort_files

_COMMIT = re.compile(r"_delta_log/(\d{20})\.(?:json|checkpoint\..*)")
_CHECKPOINT = re.compile(r"_delta_log/(\d{20})\.checkpoint\.(?:\d{10}\.(\d{10})\.)?.*")
_BESIDE = re.compile(r"_delta_log/_sidecars/.*|(?:.*/)?deletion_vector_[^/]*\.bin")
"""Files that commits and checkpoints refer to."""
_NUM_REQUESTS = 16


def copy_log(directory: TableDirectory, version: int | None, target: Path) -> None:
    """Copy what opening a version needs, None for the newest: the log from the checkpoint before it on, and deletion
    vectors. Raises DataError and OSError if an object cannot be read."""
    objects = {name.removeprefix(f"{directory.name}/"): file for name, file in directory.objects.items()}
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


def list_delta_files(directory: TableDirectory, version: str | None) -> list[TableFile]:
    """List the files of a version of a table; version None is the one that was named, else the newest.

    Raises DataError if a file is missing or outside the data roots,
    and exceptions of that library.
    """
    number = None if version is None else int(version)
    if directory.version_file is not None:
        number = int(directory.version_file.partition(".")[0])
    with TemporaryDirectory() as temporary:
        place = directory.name
        if is_remote(place):
            place = str(Path(temporary).resolve())
            copy_log(directory, number, Path(place))
        else:
            # The library follows links wherever they lead, and its errors quote what it finds there.
            directory.list_names("_delta_log")
        table = DeltaTable(place, version=number)
        actions = pa.table(table.get_add_actions())
        deleted = _find_deleted_rows(table, place)
    values, columns = _list_partition_values(actions), _list_columns(table)
    read = TableVersion(directory.name, directory.place, str(table.version()))
    files: list[tuple[int, TableFile]] = []
    for row, path in enumerate(map(unquote, actions["path"].to_pylist())):
        is_absolute = path.startswith(("/", "file:")) or "://" in path
        found = vars(directory.find(path if is_absolute else f"{directory.name}/{path}"))
        constants = {column: array[row] for column, array in values.items()}
        rows = deleted.pop(_remove_scheme(path), np.empty(0, dtype=np.int64))
        file = TableFile(**found, table=read, columns=columns, constants=constants, deleted_rows=rows)
        files.append((actions["modification_time"][row].as_py(), file))
    if deleted:
        raise directory.make_error(f"deletes rows of {next(iter(deleted))}, which it does not have", "a complete log")
    return sort_files(files)


def _list_partition_values(actions: pa.Table) -> dict[str, pa.Array]:
    """List the log's values of columns that the files lack, by name: one value for each file."""
    if "partition" not in actions.schema.names:
        return {}
    partition = actions["partition"].combine_chunks()
    return {partition.type.field(index).name: partition.field(index) for index in range(partition.type.num_fields)}


def _list_columns(table: DeltaTable) -> list[TableColumn]:
    """List the columns of a table. With a column mapping files have other names, or ids, which stay when a column is
    renamed."""
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    columns: list[TableColumn] = []
    for field in json.loads(table.schema().to_json())["fields"]:
        name, facts = field["name"], field["metadata"]
        stored = name if mode == "none" else facts["delta.columnMapping.physicalName"]
        columns.append(TableColumn(name, (stored,), facts["delta.columnMapping.id"] if mode == "id" else None))
    return columns


def _find_deleted_rows(table: DeltaTable, place: str) -> dict[str, NDArray[np.int64]]:
    """Find the numbers of the deleted rows in the files, by path without scheme, relative to `place` inside it."""
    deleted: dict[str, NDArray[np.int64]] = {}
    for batch in map(pa.record_batch, table.deletion_vectors()):
        for name, is_kept in zip(batch["filepath"].to_pylist(), batch["selection_vector"], strict=True):
            mask = is_kept.values.to_numpy(zero_copy_only=False)
            deleted[_remove_scheme(unquote(name)).removeprefix(f"{place}/")] = np.flatnonzero(~mask).astype(np.int64)
    return deleted


def _remove_scheme(name: str) -> str:
    return name.partition("://")[2] or name
