"""Fetches a run, or a part of it, from its store to a directory."""

import json
import random
import shutil
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from dlrm.data.raw.stores import StoreError
from dlrm.record import (
    COMPLETE,
    CheckpointDirectory,
    CheckpointFaultError,
    CheckpointManifest,
    FileRecord,
    RunDirectory,
    checksum_file,
    mark_uploaded,
    write_atomically,
)
from dlrm.run_store.layout import (
    CHECKPOINTS,
    MODEL,
    MODEL_MANIFEST,
    RUN_DIRECTORIES,
    RUN_FILES,
    find_newest_attempt,
    list_remote_steps,
    name_checkpoint,
    name_content,
)
from dlrm.run_store.objects import ContentError, ObjectStore, RequestError

Result = TypeVar("Result")
Tell = Callable[[str], None]

NUM_THREADS = 4
MAX_PAUSE_SECONDS = 10.0
FETCH_SECONDS = 180.0
"""Longest time for which a request is repeated, from its first failure on, before the fetch fails."""


class LaterAttemptError(StoreError):
    """Error of a run that has gone on elsewhere: what is here must not replace what is in its store."""

    def __init__(self, uri: str, message: str) -> None:
        valid = f"`dlrm resume {uri}`, with --run-directory for this directory, which fetches that first"
        super().__init__(f"{uri}: {message}", valid)


@dataclass(frozen=True)
class Retries:
    """Repetition of requests that fail, ever more slowly, within a limit of time."""

    tell: Tell
    """Takes a sentence about the first failure in a row."""
    limit_seconds: float = FETCH_SECONDS
    """Longest time from the first failure of a request to its last one; what succeeds may take longer."""
    _told: list[float] = field(default_factory=list[float])

    def run(self, work: Callable[[], Result], *, is_damage_final: bool = False) -> Result:
        """Return what `work` returns. Raises its last RequestError once the limit is over, and all other errors.

        is_damage_final: raise a ContentError at once: another try would most likely bring the same content again.
        """
        pause, deadline = 0.25, None
        while True:
            try:
                return work()
            except RequestError as error:
                if is_damage_final and isinstance(error, ContentError):
                    raise
                if deadline is None:
                    deadline = time.monotonic() + self.limit_seconds
                if time.monotonic() >= deadline:
                    raise
                if not self._told or time.monotonic() - self._told[-1] > FETCH_SECONDS / 6:
                    self._told.append(time.monotonic())
                    self.tell(f"tries again: {error}")
                time.sleep(pause * random.uniform(0.7, 1.3))
                pause = min(2 * pause, MAX_PAUSE_SECONDS)


def check_is_newest(store: ObjectStore, number: int, retries: Retries) -> None:
    """Raise LaterAttemptError if a store has a later attempt than `number`. Raises RequestError too."""
    newest = find_newest_attempt(retries.run(lambda: store.list_below("")))
    if newest > number:
        raise LaterAttemptError(store.uri, f"attempt {newest} of the run is there, and this is attempt {number}")


def check_is_unfinished(store: ObjectStore, directory: RunDirectory, number: int, retries: Retries) -> None:
    """Raise LaterAttemptError if a store has the end of attempt `number`, which is about to begin, or a later one.

    Raises RequestError too.
    """
    check_is_newest(store, number, retries)
    end = f"{directory.attempt(number).path.name}/outcome.json"
    if retries.run(lambda: store.read_bytes(end)) is not None:
        raise LaterAttemptError(store.uri, f"attempt {number} of the run has ended there already")


def fetch_small_files(store: ObjectStore, directory: RunDirectory, retries: Retries) -> bool:
    """Fetch the document of a run and the ends of its attempts, as far as they are missing in `directory`.

    The document is replaced if the store has a later attempt than the directory. Return whether it has. Raises
    RequestError and OSError.
    """
    names = list(retries.run(lambda: store.list_below("")))
    is_later = find_newest_attempt(names) > find_newest_attempt(path.name for path in directory.path.glob("attempt-*"))
    if is_later and RUN_FILES[0] in names:
        retries.run(lambda: store.fetch_file(RUN_FILES[0], directory.spec))
    wanted = [name for name in names if name in RUN_FILES]
    attempts = {name.split("/")[0] for name in names if name.startswith("attempt-")}
    for attempt in attempts:
        # Also where it left no outcome, so that the next one has another number.
        (directory.path / attempt).mkdir(parents=True, exist_ok=True)
    wanted += [f"{attempt}/outcome.json" for attempt in attempts if f"{attempt}/outcome.json" in names]
    for name in wanted:
        path = directory.path / name
        if not path.exists():
            retries.run(lambda name=name, path=path: store.fetch_file(name, path))
    for root in RUN_DIRECTORIES:
        _fetch_directory(store, directory.path / root, [name for name in names if name.startswith(f"{root}/")], retries)
    return is_later


def _fetch_directory(store: ObjectStore, path: Path, names: list[str], retries: Retries) -> None:
    """Fetch the objects `names` to the directory `path`, which appears once it is whole, unless it is there."""
    if path.exists() or not names:
        return
    part = path.with_name(f"{path.name}.part")
    for name in names:
        file = part / name.partition("/")[2]
        if not file.exists():
            retries.run(lambda name=name, file=file: store.fetch_file(name, file))
    part.rename(path)


def fetch_checkpoints(store: ObjectStore, directory: RunDirectory, retries: Retries, *, replaces: bool) -> None:
    """Fetch the complete checkpoints of a run, newest first, as far as they are missing in `directory`.

    replaces: whether a checkpoint that is whole here, but not the one in the store, is replaced: where nodes have
    directories of their own, all must have the same. One that is damaged in the store, or was removed meanwhile, is
    left out. Raises RequestError and OSError.
    """
    for step, is_complete in retries.run(lambda: list_remote_steps(store)).items():
        if not is_complete:
            continue
        try:
            fetch_checkpoint(store, directory, step, retries, replaces=replaces)
        except FileNotFoundError:
            retries.tell(f"the checkpoint of step {step:,} was removed while it was fetched")
        except (CheckpointFaultError, ContentError) as fault:
            retries.tell(f"the checkpoint of step {step:,} is passed over: {fault}")


def fetch_checkpoint(
    store: ObjectStore, directory: RunDirectory, step: int, retries: Retries, *, replaces: bool = False
) -> None:
    """Fetch one checkpoint, as far as its files are missing in `directory`; `COMPLETE` is written last.

    Raises CheckpointFaultError if it is incomplete, ContentError if it is damaged, RequestError and OSError.
    """
    name, path = name_checkpoint(step), directory.checkpoint(step)
    content = retries.run(lambda: store.read_bytes(f"{name}/{COMPLETE}"))
    if content is None:
        raise CheckpointFaultError(f"{store.uri}/{name} is incomplete: there is no {COMPLETE}")
    is_other = (path / COMPLETE).exists() and (path / COMPLETE).read_bytes() != content
    if is_other and not replaces and not list_missing_files(CheckpointDirectory(path, step)):
        return
    # What is here stays until the other one is whole.
    fetched = CheckpointDirectory(path.with_name(f"{path.name}.part") if is_other else path, step)
    if is_other and (fetched.path / COMPLETE).exists():
        shutil.rmtree(fetched.path)
    fetched.path.mkdir(parents=True, exist_ok=True)
    _fetch_missing_files(store, fetched, fetched.parse_manifest(content), name_content(step, content), retries)
    write_atomically(fetched.path / COMPLETE, content)
    if is_other:
        (path / COMPLETE).unlink()
        shutil.rmtree(path)
        fetched.path.rename(path)
    mark_uploaded(directory, step, checksum_file(path / COMPLETE))


def list_missing_files(checkpoint: CheckpointDirectory) -> list[str]:
    """List the files of a checkpoint that are not here, or have another size than its manifest says."""
    try:
        manifest = checkpoint.read_manifest()
    except (CheckpointFaultError, OSError):
        return [COMPLETE]
    return _list_missing(checkpoint.path, manifest)


def _fetch_missing_files(
    store: ObjectStore, checkpoint: CheckpointDirectory, manifest: CheckpointManifest, prefix: str, retries: Retries
) -> None:
    """Fetch the files of a checkpoint that are not here from below `prefix`, each compared with its checksum.

    Raises FileNotFoundError if one is not in the store, ContentError, RequestError and OSError.
    """
    missing = _list_missing(checkpoint.path, manifest)
    if not missing:
        return
    num_bytes = sum(manifest.files[name].num_bytes for name in missing)
    retries.tell(f"fetching the checkpoint of step {checkpoint.step:,}: {num_bytes / 1e6:,.0f} MB")

    def fetch(name: str) -> None:
        path = checkpoint.path / name
        _retry_damaged(retries, lambda: store.fetch_file(f"{prefix}/{name}", path, manifest.files[name]))

    run_all(fetch, missing)


def fetch_model(store: ObjectStore, path: Path, retries: Retries, prefix: str = MODEL) -> bool:
    """Fetch the model of a run to the new directory `path`. Return whether there is one.

    prefix: name of its directory in the store; empty for the store's own. Raises ContentError if the model is damaged,
    RequestError and OSError.
    """
    below = f"{prefix}/" if prefix else ""
    content = retries.run(lambda: store.read_bytes(f"{below}{MODEL_MANIFEST}"))
    if content is None:
        return False
    files = parse_model_manifest(content, f"{store.uri}/{below}{MODEL_MANIFEST}")
    names = set(retries.run(lambda: store.list_below(prefix)))
    # What the manifest leaves out, such as the card, may have been edited.
    others = {name.removeprefix(below) for name in names if name.startswith(below)} - files.keys() - {MODEL_MANIFEST}

    def fetch(name: str) -> None:
        _retry_damaged(retries, lambda: store.fetch_file(f"{below}{name}", path / name, files.get(name)))

    path.mkdir(parents=True, exist_ok=True)
    run_all(fetch, [*files, *(name for name in others if name.endswith(".md"))])
    write_atomically(path / MODEL_MANIFEST, content)
    return True


def parse_model_manifest(content: bytes, name: str) -> dict[str, FileRecord]:
    """Return the files that the manifest of a model lists. name: of the manifest. Raises ContentError."""
    try:
        return {name: FileRecord.model_validate(file) for name, file in json.loads(content)["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ContentError(f"{name}: is no manifest of a model that this version has written") from None


def find_remote_step(store: ObjectStore, name: str, retries: Retries) -> int:
    """Find a complete checkpoint in a store by the name that a user gives it: newest, or such as step-500.

    Raises CheckpointFaultError with the names of the complete checkpoints, and RequestError.
    """
    steps = [step for step, is_complete in retries.run(lambda: list_remote_steps(store)).items() if is_complete]
    names = ", ".join(name_checkpoint(step).removeprefix(f"{CHECKPOINTS}/") for step in steps) or "a run that has one"
    if name == "newest" and steps:
        return steps[0]
    number = name.removeprefix("step-")
    if number.isdecimal() and int(number) in steps:
        return int(number)
    raise CheckpointFaultError(f"{name} is no complete checkpoint in {store.uri} (valid: newest, {names})")


def _list_missing(path: Path, manifest: CheckpointManifest) -> list[str]:
    # Without its own manifest, a file may be one of another try to write this checkpoint.
    is_own = (path / COMPLETE).exists()

    def is_here(name: str, file: FileRecord) -> bool:
        found = path / name
        if not found.is_file() or found.stat().st_size != file.num_bytes:
            return False
        return is_own or FileRecord.from_file(found) == file

    return [name for name, file in sorted(manifest.files.items()) if not is_here(name, file)]


def _retry_damaged(retries: Retries, fetch: Callable[[], None]) -> None:
    """Fetch a file, and once more where it came damaged. Raises as `fetch` does."""
    try:
        retries.run(fetch, is_damage_final=True)
    except ContentError:
        retries.run(fetch, is_damage_final=True)


def run_all(work: Callable[[str], None], names: Iterable[str]) -> None:
    """Call `work` for each of `names`, several at once; raises what one of the calls raises.

    All calls have ended then, unless the main thread is asked to stop: that waits for none.
    """
    executor = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="files")
    is_waiting = True
    try:
        list(executor.map(work, names))
    except (SystemExit, KeyboardInterrupt):
        is_waiting = False
        raise
    finally:
        executor.shutdown(wait=is_waiting, cancel_futures=True)
