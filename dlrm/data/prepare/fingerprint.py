"""Fingerprint of a preparation: a hash of everything that its outcome depends on."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dlrm.config import DataConfig
from dlrm.data.encode.encoders import Encoders
from dlrm.data.errors import DataError
from dlrm.data.packed.layout import FORMAT_VERSION
from dlrm.data.raw.data_file import DataFile, find_object
from dlrm.data.raw.stores import StoreError

_NUM_REQUESTS = 16
"""Number of objects of a store that are asked for at a time."""
READING_VERSION = 4
"""Version of how raw values become rows; raised where the same files and settings give other rows than before."""


def compute_fingerprint(
    config: DataConfig, train: Sequence[Any], evaluation: Sequence[Any], base: Encoders | None
) -> str:
    """Compute the fingerprint of a preparation, in hex.

    train, evaluation: for each file, in order, a value that identifies its content and can be written as JSON.
    """
    outcome = [_get_settings(config), train, evaluation, None if base is None else _hash_encoders(base)]
    return hashlib.sha256(json.dumps(outcome, sort_keys=True).encode()).hexdigest()


def get_identities(
    config: DataConfig, files: Sequence[DataFile], contents: Mapping[str, str] | None = None
) -> list[Any]:
    """Return for each file a value that identifies the rows read from it, ready for JSON.

    contents: hashes of the contents of files, by name; None: names and times identify the contents.
    """
    names = config.raw_schema.names
    found: list[Any] = []
    for file in files:
        content = file.get_identity() if contents is None else contents[file.name]
        context = file.get_context(names)
        found.append([content, context] if context else content)
    return found


def hash_state(files: Sequence[DataFile]) -> str:
    """Hash the sizes, times and inodes of the files, not their names: the hash changes when a file is written to."""
    states = [[file.num_bytes, file.modified_ns, file.changed_ns, file.inode] for file in files]
    return hashlib.sha256(json.dumps(states).encode()).hexdigest()


def check_unchanged(files: Sequence[DataFile]) -> None:
    """Raise DataError if a file or an object of a store has changed since it was found, and OSError if a store
    cannot be asked."""
    remote = [file for file in files if file.is_remote]
    with ThreadPoolExecutor(_NUM_REQUESTS) as pool:
        are_same = dict(zip(remote, pool.map(_is_same_object, remote), strict=True))
    for file in files:
        if not (are_same[file] if file.is_remote else _is_same_file(file)):
            raise DataError("changed while it was read", file.name, valid="a file that no other process writes to")


def _is_same_file(file: DataFile) -> bool:
    try:
        return DataFile.from_path(Path(file.name)).get_identity() == file.get_identity()
    except OSError:
        return False


def _is_same_object(file: DataFile) -> bool:
    """Whether an object is as it was listed. Lists have times to the millisecond, single answers to the second."""
    try:
        now = find_object(file.name)
    except StoreError as error:
        raise OSError(f"{file.name}: {error.message}") from None
    return now is not None and (now.num_bytes, now.modified_ns // 10**9) == (file.num_bytes, file.modified_ns // 10**9)


def _get_settings(config: DataConfig) -> dict[str, Any]:
    """Return the settings that the outcome depends on, without the files' paths and unused settings."""
    split = None if config.eval else [config.split, config.eval_fraction]
    return {
        "format_version": FORMAT_VERSION,
        "reading_version": READING_VERSION,
        "versions": get_library_versions(),
        "format": config.format,
        "schema": config.raw_schema.model_dump(mode="json"),
        "vocabulary": config.vocabulary.model_dump(mode="json"),
        "split": split,
        "max_bad_fraction": config.max_bad_fraction,
        "window_rows": config.window_rows if config.vocabulary.has_dynamic_ids else None,
    }


def _hash_encoders(base: Encoders) -> str:
    digest = hashlib.sha256()
    with TemporaryDirectory() as directory:
        base.save(Path(directory))
        for path in sorted(Path(directory).iterdir()):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


_LIBRARIES = ("dlrm-service", "numpy", "polars", "pyarrow")


def get_library_versions() -> dict[str, str]:
    """Return the versions of this program and of the libraries that parse, encode and write, by name."""
    return {name: version(name) for name in _LIBRARIES}
