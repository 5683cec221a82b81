"""The directory of an unfinished preparation: locked by the process that works on it, kept so that it can be resumed.

<output>.part/preparing.json   what is being prepared; the working process holds a lock on this file
              stage/           parts
              train/ eval/ encoders/ meta.json   as in the packed directory that it becomes
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from dlrm.data.errors import DataError
from dlrm.data.packed.layout import META
from dlrm.record import FULL_DISK, remove_partial_files, sync_directory
from hostinfo.file_lock import try_lock

_STATE = "preparing.json"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class InUseError(DataError):
    """Error of an output that another process is preparing."""


class _State(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    fingerprint: str
    sources: str
    """State of the raw files when staging began (`hash_state`): parts staged from another state may hold other rows."""
    boot_id: str
    """Boot id of the machine: what was staged before a reboot may not have reached the disk."""


@dataclass(frozen=True)
class Unfinished:
    """The directory of an unfinished preparation."""

    path: Path
    created_parents: tuple[Path, ...] = ()
    """Parent directories that were created for it, innermost first."""

    @classmethod
    def for_output(cls, output: Path) -> "Unfinished":
        return cls(output.with_name(f"{output.name}.part"))

    @property
    def stage(self) -> Path:
        return self.path / "stage"

    @property
    def is_complete(self) -> bool:
        """Whether all files are written and only the renaming is left: `meta.json` is written last."""
        return (self.path / META).exists()

    def remove(self) -> None:
        """Remove the directory and the parent directories that were created for it.

        `preparing.json` is removed last, so that a half-removed directory can still be recognised.
        """
        _remove_all_but_state(self.path)
        (self.path / _STATE).unlink()
        self.path.rmdir()
        # Another process may have put something into these directories.
        with suppress(OSError):
            for directory in self.created_parents:
                directory.rmdir()

    def remove_if_other(self, fingerprint: str) -> None:
        """Remove the directory if it is of a preparation with another fingerprint."""
        try:
            found = _State.model_validate_json((self.path / _STATE).read_bytes())
        except (OSError, ValidationError):
            found = None
        if found is None or found.fingerprint != fingerprint:
            shutil.rmtree(self.path, ignore_errors=True)

    def finish(self, output: Path) -> None:
        """Clean up, flush the directories to disk and rename this one to `output`."""
        if self.stage.exists():
            shutil.rmtree(self.stage)
        remove_partial_files(self.path)
        for directory in (*(entry for entry in self.path.iterdir() if entry.is_dir()), self.path):
            sync_directory(directory)
        self.path.rename(output)
        sync_directory(output.parent)
        # Last, because until then the lock on this file keeps other processes from claiming the directory.
        (output / _STATE).unlink()


@contextmanager
def lock_unfinished(output: Path, fingerprint: str, sources: str) -> Iterator[Unfinished]:
    """Lock and yield the unfinished directory of `output`, with the files that an interrupted preparation left there.

    fingerprint: hash of everything that the outcome depends on. sources: state of the raw files; parts that were staged
    from another state are removed. Raises DataError if `output` exists, or if another process holds the
    unfinished directory or it belongs to a different preparation.
    """
    _refuse_existing(output)
    unfinished = _create(output)
    descriptor = _open_state(unfinished.path, output)
    try:
        _lock(descriptor, unfinished.path, output)
        _claim(descriptor, unfinished.path, fingerprint, sources)
        yield unfinished
    finally:
        os.close(descriptor)


def _create(output: Path) -> Unfinished:
    """Create the unfinished directory of `output` and its parents. Raises DataError if they cannot be created."""
    if output.name in ("", ".."):
        raise DataError("is not the name of a new directory", output, valid="a path that ends in a new name")
    missing_parents = [parent for parent in output.parents if not parent.exists()]
    unfinished = Unfinished(Unfinished.for_output(output).path, tuple(missing_parents))
    try:
        # Two processes may create it at the same time.
        unfinished.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in FULL_DISK:
            raise
        is_below_file = isinstance(error, NotADirectoryError | FileExistsError)
        reason = "a part of its path is a file" if is_below_file else error.strerror
        raise _make_not_created_error(output, reason) from None
    return unfinished


def _open_state(path: Path, output: Path) -> int:
    """Open `preparing.json` of the unfinished directory `path`, and return its file descriptor.

    Raises DataError if the directory holds other files, or this user may not write there, and InUseError if
    another process has just removed or renamed it.
    """
    try:
        if any(path.iterdir()) and not (path / _STATE).exists():
            # Another process may have finished in between.
            _refuse_existing(output)
            valid = "remove it, or choose another output"
            raise DataError("contains something other than an unfinished preparation", path, valid=valid)
        return os.open(path / _STATE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        _refuse_existing(output)
        raise _make_in_use_error(output) from None
    except PermissionError as error:
        raise _make_not_created_error(output, error.strerror) from None


def _make_in_use_error(output: Path) -> InUseError:
    return InUseError("another process is preparing it", output, valid="wait for it, or choose another output")


def _make_not_created_error(output: Path, reason: str | None) -> DataError:
    return DataError(f"cannot be created: {reason}", output, valid="a path where this user may create a directory")


def _refuse_existing(output: Path) -> None:
    try:
        exists = output.exists() or output.is_symlink()
    except OSError as error:
        raise _make_not_created_error(output, error.strerror) from None
    if exists:
        raise DataError("exists already", output, valid="remove it, or choose another output")


def _lock(descriptor: int, path: Path, output: Path) -> None:
    if not try_lock(descriptor):
        raise _make_in_use_error(output)
    try:
        is_same = os.path.samestat(os.fstat(descriptor), (path / _STATE).stat())
    except FileNotFoundError:
        is_same = False
    # The other process may have finished, or failed, after this one opened the file and before it got the lock.
    _refuse_existing(output)
    if not is_same:
        raise _make_in_use_error(output)


def _claim(descriptor: int, path: Path, fingerprint: str, sources: str) -> None:
    """Record this preparation in the directory, and remove unfinished files that it cannot reuse.

    These are files staged from another state of the raw files or before a reboot. Raises DataError if the directory
    holds a preparation with another fingerprint.
    """
    state = _State(fingerprint=fingerprint, sources=sources, boot_id=_BOOT_ID.read_text().strip())
    try:
        found = _State.model_validate_json(os.pread(descriptor, 4096, 0))
    except ValidationError:
        found = None
    if found is not None and found.fingerprint != fingerprint:
        message = "contains an unfinished preparation of other data, with other settings or by another version"
        raise DataError(message, path, valid="remove it, or choose another output")
    if found == state:
        return
    if found is None or not (path / META).exists():
        _remove_all_but_state(path)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, state.model_dump_json().encode(), 0)
    os.fsync(descriptor)


def _remove_all_but_state(path: Path) -> None:
    for entry in path.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != _STATE:
            entry.unlink()
