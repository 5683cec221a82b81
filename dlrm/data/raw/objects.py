"""Objects of a store as files."""

from pyarrow import fs

from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.stores import open_store


def find_object(name: str) -> DataFile | None:
    """Find the object of that name as it is now; None if absent. Raises StoreError and OSError."""
    store, path = open_store(name)
    info = store.get_file_info(path)
    return _make_data_file(name.partition("://")[0], info) if info.type == fs.FileType.File else None


def list_objects(name: str) -> list[DataFile]:
    """List the object of that name, or the objects below it, hidden ones too. Raises StoreError and OSError."""
    store, path = open_store(name)
    scheme = name.partition("://")[0]
    info = store.get_file_info(path)
    if info.type == fs.FileType.File:
        return [_make_data_file(scheme, info)]
    if info.type == fs.FileType.NotFound:
        return []
    below = store.get_file_info(fs.FileSelector(path, recursive=True))
    return [_make_data_file(scheme, info) for info in below if info.type == fs.FileType.File]


def _make_data_file(scheme: str, info: fs.FileInfo) -> DataFile:
    return DataFile(f"{scheme}://{info.path}", info.size, info.mtime_ns or 0)
