"""Open the description of a packed directory, for which nothing is imported that reads rows."""

from pathlib import Path

from pydantic import ValidationError

from dlrm.data.errors import DataError
from dlrm.data.packed.layout import FORMAT_VERSION, META, PackedMeta, read_meta

VALID = "a directory that `dlrm prepare` has written"


def open_packed_meta(directory: Path) -> PackedMeta:
    """Read the meta.json of a packed directory. Raises DataError if it is invalid or of another format version."""
    try:
        meta = read_meta(directory)
    except OSError as error:
        raise DataError(f"not readable: {error.strerror}", directory / META, valid=VALID) from None
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(map(str, first["loc"]))
        raise DataError(first["msg"], directory / META, field=location or None, valid=VALID) from None
    if meta.format_version != FORMAT_VERSION:
        valid = f"{FORMAT_VERSION}; prepare the data again"
        raise DataError(f"is {meta.format_version}", directory / META, field="format_version", valid=valid)
    return meta
