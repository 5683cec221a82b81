"""The directory of a table, and the search for the files that its log names."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from dlrm.config.patterns import hide_credentials, is_remote, make_natural_sort_key
from dlrm.data.errors import DataError
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.objects import find_object
from dlrm.data.raw.stores import StoreError
from dlrm.data.raw.table_file import TableFile
from dlrm.data.roots import Roots


class TableDirectory:
    """The directory of a table, whose log may name files elsewhere, too. Every file must be inside the data roots."""

    def __init__(
        self, name: str, field: str | None, roots: Roots, objects: Mapping[str, DataFile] | None = None
    ) -> None:
        """Set where the table is. name: real path, or URI. field: for messages. objects: all those below a URI."""
        self.name, self.field = name, field
        self.metadata_name: str | None = None
        """Name of the file of metadata that a user has chosen, for Iceberg; None: the present one."""
        self._roots, self._objects = roots, objects or {}

    def list_objects(self) -> dict[str, DataFile]:
        """List all objects of a table in a store, by their name in its directory."""
        return {name.removeprefix(f"{self.name}/"): file for name, file in self._objects.items()}

    def list_names(self, folder: str) -> list[str]:
        """List the names of the visible files directly in a folder of the table. Raises DataError for a link that leads
        out of the data roots."""
        start = f"{self.name}/{folder}/"
        if is_remote(self.name):
            return [name.removeprefix(start) for name in self._objects if name.rpartition("/")[0] + "/" == start]
        self._roots.check(Path(start), start, self.field, "a table")
        paths = [path for path in Path(start).iterdir() if not path.name.startswith(".")]
        for path in paths:
            self._roots.check(path, path, self.field)
        return [path.name for path in paths]

    def find(self, name: str) -> DataFile:
        """Find a file by its path or URI. Raises DataError if it is missing, or outside the data roots."""
        scheme, _, rest = name.partition("://")
        if scheme in ("s3a", "s3n"):
            name = f"s3://{rest}"
        elif name.startswith("file:"):
            name = "/" + name.removeprefix("file:").lstrip("/")
        elif rest and not is_remote(name):
            valid = "a table whose files are on this machine, in s3:// or in gs://"
            raise self.make_error(f"names a file in {scheme}://", valid)
        try:
            return self._find_object(name) if is_remote(name) else self._find_local(name)
        except (OSError, RuntimeError, StoreError, pa.ArrowException):
            missing = hide_credentials(name)
            raise self.make_error(
                f"names a file that cannot be read: {missing}", "a table with all its files"
            ) from None

    def _find_local(self, name: str) -> DataFile:
        real = Path(self.name, name).resolve()
        self._roots.check(real, name, self.field)
        return DataFile.from_path(real)

    def _find_object(self, name: str) -> DataFile:
        self._roots.check_object(name, hide_credentials(name), self.field)
        found = self._objects.get(name) or find_object(name)
        if found is None:
            raise FileNotFoundError(name)
        return found

    def make_error(self, message: str, valid: str) -> DataError:
        """Make an error about the table. message: what follows the name of its directory."""
        return DataError(message, self.name, field=self.field, valid=valid)


def sort_files(files: Iterable[tuple[int, TableFile]]) -> list[TableFile]:
    """Sort files by directory, in natural order, and within one by the number of their writing, then by name."""

    def make_key(numbered: tuple[int, TableFile]) -> tuple[Any, int, Any]:
        directory, _, name = numbered[1].name.rpartition("/")
        return make_natural_sort_key(directory), numbered[0], make_natural_sort_key(name)

    return [file for _, file in sorted(files, key=make_key)]
