"""Search for the objects that a path, prefix or pattern of an object store names."""

import fnmatch
import glob
from collections.abc import Sequence

import pyarrow as pa
from pyarrow import fs

from dlrm.config.patterns import natural_order, without_credentials
from dlrm.data.errors import DataError
from dlrm.data.raw.data_file import DataFile
from dlrm.data.raw.stores import StoreError, open_store


def remote_files(pattern: str, field: str, roots: Sequence[str] | None) -> list[DataFile]:
    """Find the objects that `pattern` names, in `natural_order`; a prefix names all objects below it, like a directory.

    field: field of the job document, for messages. roots: prefixes, one of which must contain every object; None allows
    all objects. Raises DataError where no object is found, or where one is empty or outside the roots.
    """
    base, shown = _fixed_part(pattern), without_credentials(pattern)
    if roots is not None and not any(f"{base}/".startswith(f"{root.rstrip('/')}/") for root in roots):
        under = " or ".join(roots) or "a data root; none is in a store"
        raise DataError("lies outside the data roots", shown, field=field, valid=f"an object under {under}")
    try:
        found = _objects(base)
    except StoreError as error:
        raise DataError(error.message, shown, field=field, valid=error.valid) from None
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"not readable: {error}", shown, field=field, valid="objects that may be read") from None
    if base != pattern.rstrip("/"):
        found = [file for file in found if _is_named(file.name, pattern.rstrip("/"))]
    if not found:
        what = "the pattern matches no object" if glob.has_magic(pattern) else "no such object"
        raise DataError(what, shown, field=field, valid="an object that exists, a prefix or a pattern")
    for file in found:
        if file.num_bytes == 0:
            raise DataError("the object is empty", file.name, field=field, valid="an object with at least one row")
    return sorted(found, key=lambda file: natural_order(file.name))


def _fixed_part(pattern: str) -> str:
    """Return the parts of `pattern` before the first one with a wildcard; all of it where there is none."""
    parts = pattern.rstrip("/").split("/")
    magic = [place for place, part in enumerate(parts) if glob.has_magic(part)]
    return "/".join(parts[: magic[0]]) if magic else "/".join(parts)


def _objects(name: str) -> list[DataFile]:
    """List the object of that name, or the objects below it except hidden ones."""
    store, path = open_store(name)
    scheme = name.partition("://")[0]
    info = store.get_file_info(path)
    if info.type == fs.FileType.File:
        return [_data_file(scheme, info)]
    if info.type == fs.FileType.NotFound:
        return []
    below = store.get_file_info(fs.FileSelector(path, recursive=True))
    files = [info for info in below if info.type == fs.FileType.File]
    return [_data_file(scheme, info) for info in files if not _is_hidden(info.path.removeprefix(path))]


def _data_file(scheme: str, info: fs.FileInfo) -> DataFile:
    return DataFile(f"{scheme}://{info.path}", info.size, info.mtime_ns or 0)


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))


def _is_named(name: str, pattern: str) -> bool:
    """Whether `pattern` matches an object's name or the name of a directory above it."""
    wanted = pattern.split("/")
    places = _past_any(wanted, {0})
    for part in name.split("/"):
        matching = {place for place in places if wanted[place] == "**" or fnmatch.fnmatchcase(part, wanted[place])}
        places = _past_any(wanted, {place if wanted[place] == "**" else place + 1 for place in matching})
        if len(wanted) in places:
            return True
    return False


def _past_any(wanted: Sequence[str], places: set[int]) -> set[int]:
    """Add to `places` in a pattern those after a `**`, since it may stand for no part at all."""
    reached = set(places)
    for place, part in enumerate(wanted):
        if part == "**" and place in reached:
            reached.add(place + 1)
    return reached
