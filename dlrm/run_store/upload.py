"""Uploads what a run leaves in its directory: small files, checkpoints from the newest on, the model."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dlrm.config import format_count
from dlrm.record import (
    CHECKPOINTS_REMOVED,
    COMPLETE,
    UPLOADED,
    CheckpointDirectory,
    CheckpointFaultError,
    CheckpointManifest,
    CheckpointReport,
    FileRecord,
    RunDirectory,
    are_files_reported,
    checksum_file,
    is_uploaded,
    list_checkpoints,
    make_model_report,
    mark_uploaded,
)
from dlrm.run_store.fetch import list_missing_files, parse_model_manifest, run_all
from dlrm.run_store.layout import (
    MODEL,
    MODEL_MANIFEST,
    PARTS,
    RUN_DIRECTORIES,
    RUN_FILES,
    list_attempt_files,
    list_remote_steps,
    name_checkpoint,
    name_content,
)
from dlrm.run_store.objects import ObjectStore

LOG_SECONDS = 30.0
"""Seconds between two uploads of files that grow."""
GROWTH = 1.125
"""Growth of a file from which on it is uploaded again before the end, so that its uploads stay in proportion to it."""

FIRST_LOOK_SECONDS, MAX_LOOK_SECONDS = 0.2, 3.0
"""Seconds between two looks for what other nodes write, which grow from one look to the next."""

TellEvent = Callable[..., None]


@dataclass(frozen=True)
class UploadPart:
    """The files that this process uploads."""

    number: int | None
    """Attempt whose files are uploaded; None for no attempt."""
    node: int = 0
    """Number of this node; node 0 also uploads the files of the whole run, and writes `COMPLETE`."""
    is_shared: bool = True
    """Whether this run directory is the only one of the run; otherwise every node has one, with files of its own."""


@dataclass
class _Wait:
    """Wait for what other nodes write."""

    pause: float = FIRST_LOOK_SECONDS
    look_at: float = 0.0
    """Time of the next look."""

    def is_due(self) -> bool:
        """Whether to look now; then the next look is later."""
        now = time.monotonic()
        if now < self.look_at:
            return False
        self.look_at, self.pause = now + self.pause, min(2 * self.pause, MAX_LOOK_SECONDS)
        return True


@dataclass
class Left:
    """Files that are not in the store yet."""

    num_files: int = 0
    num_bytes: int = 0
    names: list[str] = field(default_factory=list[str])
    """Names of checkpoints, and of the model."""
    is_only_waiting: bool = True
    """Whether nothing is left but checkpoints that wait for the files of other nodes."""

    def add(self, name: str, sizes: list[int], *, is_waiting: bool = False) -> None:
        self.num_files += len(sizes)
        self.num_bytes += sum(sizes)
        self.names.append(name)
        self.is_only_waiting &= is_waiting

    def describe(self) -> str:
        return f"{', '.join(self.names)} ({self.num_files:,} files, {self.num_bytes / 1e6:,.0f} MB)"


class Uploader:
    """Uploads of one node to the store of its run."""

    def __init__(
        self,
        store: ObjectStore,
        directory: RunDirectory,
        part: UploadPart,
        require_lease: Callable[[], None],
        tell: TellEvent,
    ) -> None:
        """Prepare to upload.

        require_lease: raises if this launch must not write now; called before every change. A TellEvent takes the name,
        the message and the details of an event.
        """
        self._store = store
        self._directory = directory
        self._part = part
        self._require_lease = require_lease
        self._tell = tell
        self._sizes: dict[str, int] = {}
        """Sizes of the growing files in the store, by name."""
        self._checksums: dict[str, str] = {}
        """Checksums of the files of checkpoints in the store that are not uploaded again, by name."""
        self._stamps: dict[str, tuple[int, int]] = {}
        """Sizes and times, in nanoseconds, of the files of the whole run in the store, by name."""
        self._waits: dict[str, _Wait] = {}
        """Waits for other nodes, by the checksum of the checkpoint's `COMPLETE`."""
        self._logs_at = 0.0
        self._own_parts: dict[int, str] = {}
        """Checksums of `COMPLETE`, by step, of checkpoints whose files of this node are in the store."""
        self._model: str | None = None
        """Checksum of the manifest of the model in the store; None if that is not known."""

    def upload(self) -> None:
        """Upload one checkpoint or the model, and the small files that have changed. Raises RequestError, StoreError,
        LeaseLostError and OSError."""
        self._upload_run_files()
        self._upload_growing_files()
        for checkpoint in self._list_waiting():
            if self._upload_checkpoint(checkpoint):
                return
        self._upload_model()

    def upload_end(self) -> None:
        """Upload the last state of all small and growing files. Raises as `upload`."""
        self._upload_run_files()
        self._upload_growing_files(is_end=True)

    def list_left(self) -> Left:
        """List what is here and not in the store yet, small files aside."""
        left = Left()
        for checkpoint in self._list_waiting():
            with suppress(CheckpointFaultError, OSError):
                manifest = checkpoint.read_manifest()
                is_waiting = self._has_own_part(checkpoint)
                sizes = [file.num_bytes for name, file in manifest.files.items() if (checkpoint.path / name).exists()]
                left.add(f"the checkpoint of step {checkpoint.step:,}", sizes, is_waiting=is_waiting)
        with suppress(OSError):
            if self._part.node == 0 and self._find_new_model() is not None:
                files = [path for path in self._directory.model.rglob("*") if path.is_file()]
                left.add("the model", [path.stat().st_size for path in files])
        return left

    def _list_waiting(self) -> list[CheckpointDirectory]:
        """List the checkpoints here that are not in the store, newest first.

        Left out are those that cannot become complete: a file is missing here, or on a node that is gone, since a newer
        one is complete.
        """
        waiting: list[CheckpointDirectory] = []
        has_newer = False
        for checkpoint in list_checkpoints(self._directory.checkpoints):
            try:
                if self._part.is_shared:
                    is_vain = bool(list_missing_files(checkpoint))
                else:
                    is_vain = has_newer and self._has_own_part(checkpoint)
            except OSError:
                # It is being written, or removed.
                continue
            if is_uploaded(self._directory, checkpoint):
                has_newer = True
            elif not is_vain and (checkpoint.path / COMPLETE).exists():
                waiting.append(checkpoint)
        return waiting

    def _upload_checkpoint(self, checkpoint: CheckpointDirectory) -> bool:
        """Upload a checkpoint, or go on with it. Return whether something was done."""
        started = time.monotonic()
        try:
            content = (checkpoint.path / COMPLETE).read_bytes()
            manifest = checkpoint.parse_manifest(content)
            checksum = checksum_file(checkpoint.path / COMPLETE)
            is_new = not self._has_own_part(checkpoint)
            if is_new:
                self._upload_own_part(checkpoint, manifest, content)
                self._own_parts[checkpoint.step] = checksum
        except (CheckpointFaultError, FileNotFoundError):
            # It was removed here meanwhile, since a newer one is in the store.
            return False
        if not self._part.is_shared and not self._waits.setdefault(checksum, _Wait()).is_due():
            return is_new
        name = f"{name_checkpoint(checkpoint.step)}/{COMPLETE}"
        if self._part.node == 0:
            if not self._has_all_parts(checkpoint.step, manifest, content):
                return is_new
            self._require_lease()
            self._store.put_bytes(name, content)
        elif self._store.read_bytes(name) != content:
            # Node 0 has not found the files of all nodes there yet.
            return is_new
        self._waits.pop(checksum, None)
        with suppress(FileNotFoundError):
            mark_uploaded(self._directory, checkpoint.step, checksum)
        if self._part.node == 0:
            seconds = time.monotonic() - started
            size = f"{manifest.num_bytes / 1e6:,.0f} MB in {seconds:.1f} s"
            message = f"the checkpoint of step {checkpoint.step:,} is in {self._store.uri}: {size}"
            place = f"{self._store.uri}/{name_checkpoint(checkpoint.step)}"
            self._tell(
                UPLOADED, message, **CheckpointReport.from_manifest(manifest, place).model_dump(), seconds=seconds
            )
            self._remove_old(checkpoint.step)
        return True

    def _upload_own_part(self, checkpoint: CheckpointDirectory, manifest: CheckpointManifest, complete: bytes) -> None:
        """Upload the files of a checkpoint that are here, each compared with its checksum in the store afterwards."""
        prefix = name_content(checkpoint.step, complete)
        here = {name: file for name, file in manifest.files.items() if (checkpoint.path / name).exists()}

        def put(name: str) -> None:
            file = f"{prefix}/{name}"
            # One that was there before another one failed need not be sent again.
            if self._checksums.get(file) != here[name].sha256:
                self._require_lease()
                self._store.put_file(checkpoint.path / name, file, here[name])
                self._checksums[file] = here[name].sha256

        run_all(put, here)
        if not self._part.is_shared:
            content = json.dumps({name: file.sha256 for name, file in here.items()})
            self._require_lease()
            self._store.put_bytes(f"{prefix}/{PARTS}/node-{self._part.node}.json", content.encode())

    def _has_own_part(self, checkpoint: CheckpointDirectory) -> bool:
        return self._own_parts.get(checkpoint.step) == checksum_file(checkpoint.path / COMPLETE)

    def _has_all_parts(self, step: int, manifest: CheckpointManifest, complete: bytes) -> bool:
        """Whether all nodes have left the checksums of their files of a checkpoint, and these are right."""
        if self._part.is_shared:
            return True
        prefix = f"{name_content(step, complete)}/{PARTS}"
        told: set[tuple[str, str]] = set()
        for name in self._store.list_below(prefix):
            content = self._store.read_bytes(name)
            told |= set(json.loads(content).items()) if content else set()
        return all((name, file.sha256) in told for name, file in manifest.files.items())

    def _remove_old(self, newest_step: int) -> None:
        """Remove the checkpoints from the store that were removed here, once a newer one is complete there.

        Newer ones stay: this directory may be out of date.
        """
        here = {checkpoint.step for checkpoint in list_checkpoints(self._directory.checkpoints)}
        removed: list[int] = []
        for step in list_remote_steps(self._store):
            if step not in here and step < newest_step:
                self._require_lease()
                prefix = name_checkpoint(step)
                self._store.remove(f"{prefix}/{COMPLETE}")
                self._store.remove_below(prefix)
                self._directory.uploaded_mark(step).unlink(missing_ok=True)
                self._checksums = {
                    name: checksum for name, checksum in self._checksums.items() if not name.startswith(f"{prefix}/")
                }
                removed.append(step)
        if removed and are_files_reported():
            message = f"{format_count(len(removed), 'old checkpoint')} removed from {self._store.uri}"
            self._tell(CHECKPOINTS_REMOVED, message, steps=removed)

    def _find_new_model(self) -> str | None:
        """Return the checksum of the manifest of a model that is not in the store yet; None if absent."""
        manifest = self._directory.model / MODEL_MANIFEST
        checksum = checksum_file(manifest) if manifest.exists() else None
        return checksum if checksum != self._model else None

    def _upload_model(self) -> None:
        if self._part.node != 0 or (checksum := self._find_new_model()) is None:
            return
        model, started = self._directory.model, time.monotonic()
        content = (model / MODEL_MANIFEST).read_bytes()
        self._require_lease()
        if self._store.read_bytes(f"{MODEL}/{MODEL_MANIFEST}") == content:
            self._model = checksum
            return
        self._store.remove(f"{MODEL}/{MODEL_MANIFEST}")
        listed = parse_model_manifest(content, str(model / MODEL_MANIFEST))
        files = [path for path in model.rglob("*") if path.is_file() and path != model / MODEL_MANIFEST]
        for path in files:
            name = path.relative_to(model).as_posix()
            self._require_lease()
            self._store.put_file(path, f"{MODEL}/{name}", listed.get(name) or FileRecord.from_file(path))
        self._require_lease()
        self._store.put_bytes(f"{MODEL}/{MODEL_MANIFEST}", content)
        self._model = checksum
        seconds, place = time.monotonic() - started, f"{self._store.uri}/{MODEL}"
        report = make_model_report(model, place)
        self._tell(UPLOADED, f"the model is in {place}, after {seconds:.1f} s", **report.model_dump(), seconds=seconds)

    def _upload_run_files(self) -> None:
        """Upload the files of the whole run that have changed."""
        if self._part.node != 0:
            return
        paths = [self._directory.path / name for name in RUN_FILES]
        paths += [path for name in RUN_DIRECTORIES for path in (self._directory.path / name).rglob("*")]
        for path in paths:
            if not path.is_file():
                continue
            name, status = self._name(path), path.stat()
            stamp = status.st_size, status.st_mtime_ns
            if self._stamps.get(name) != stamp:
                self._require_lease()
                self._store.put_file(path, name)
                self._stamps[name] = stamp

    def _upload_growing_files(self, *, is_end: bool = False) -> None:
        """Upload the logs and reports of the attempt that have grown enough; at the end, any growth is enough."""
        if self._part.number is None or (not is_end and time.monotonic() < self._logs_at):
            return
        for path in list_attempt_files(self._directory, self._part.number, self._part.node):
            name, size = self._name(path), path.stat().st_size
            before = self._sizes.get(name)
            if before is None or (size != before if is_end else size >= GROWTH * before and size != before):
                self._require_lease()
                self._store.put_file(path, name)
                self._sizes[name] = size
        self._logs_at = time.monotonic() + LOG_SECONDS

    def _name(self, path: Path) -> str:
        return path.relative_to(self._directory.path).as_posix()
