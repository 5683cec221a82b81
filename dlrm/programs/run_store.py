"""Works with runs in a bucket: `python -m dlrm.programs.run_store check|fetch|upload …`, started by the command line.

check URI [--new-run NAME]      whether runs can be kept below URI, and whether there is none called NAME yet
fetch URI DIRECTORY --what …    fetches a run, its model, or one of its checkpoints, to DIRECTORY
upload RUN_DIRECTORY            uploads what a run has left in its directory

Standard output reports progress and the result, one JSON object per line, as `dlrm.programs.predict` does. Exit codes:
0 done; 64 bad input, described in one line on standard error; 75 stopped on request; 1 a failure that another try may
avoid.
"""

import argparse
import math
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from dlrm.data.raw.stores import StoreError
from dlrm.exported_model.layout import CONFIG, METRICS
from dlrm.programs.json_lines import fail, print_line
from dlrm.record import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_STOPPED,
    CheckpointFaultError,
    NoModelError,
    RunDirectory,
    RunInUseError,
    RunStoreRecord,
    TrainedModel,
    find_newest_checkpoint,
    hold_run_lock,
)
from dlrm.run_store.fetch import (
    LaterAttemptError,
    Retries,
    check_is_newest,
    fetch_checkpoint,
    fetch_checkpoints,
    fetch_model,
    fetch_small_files,
    find_remote_step,
)
from dlrm.run_store.layout import MODEL, MODEL_MANIFEST, find_newest_attempt, list_remote_steps
from dlrm.run_store.lease import LeaseHeldError, LeaseLostError, RunLease
from dlrm.run_store.objects import ObjectStore, RequestError
from dlrm.run_store.open import check_store, parse_uri, split_run_uri
from dlrm.run_store.upload import Uploader, UploadPart
from hostinfo.fast_exit import skip_last_collection
from hostinfo.stop_signals import handle_stop_signals

CHECK_SECONDS = 30.0
POLL_SECONDS = 0.5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check")
    check.add_argument("uri")
    check.add_argument("--new-run", metavar="NAME", help="name of a run that is to begin there")
    fetch = commands.add_parser("fetch")
    fetch.add_argument("uri")
    fetch.add_argument("directory", type=Path)
    fetch.add_argument("--what", choices=["run", "model", "record", "source", "checkpoint"], required=True)
    fetch.add_argument("--checkpoint", help="newest, or a name such as step-500")
    fetch.add_argument("--optimizer-state", action="store_true", help="whether a source has its checkpoint too")
    upload = commands.add_parser("upload")
    upload.add_argument("directory", type=Path)
    arguments = parser.parse_args()
    # As an exception, so that a lease is given up.
    handle_stop_signals(lambda: sys.exit(EXIT_STOPPED))
    try:
        result = _run(arguments)
    except SystemExit:
        # Without waiting for the files that are on their way.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(EXIT_STOPPED)
    except (StoreError, CheckpointFaultError) as error:
        return fail(error)
    except (RequestError, LeaseHeldError, LeaseLostError, RunInUseError, OSError) as error:
        return fail(f"failed; another try may succeed: {error}", EXIT_FAILED)
    print_line({"kind": "result", **result})
    return EXIT_DONE


def _run(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.command == "check":
        return {"uri": check_place(arguments.uri, arguments.new_run)}
    if arguments.command == "upload":
        return upload_run(RunDirectory(arguments.directory))
    retries, directory = Retries(_tell), arguments.directory
    match arguments.what:
        case "run":
            return fetch_run(arguments.uri, directory, retries)
        case "checkpoint":
            return fetch_one_checkpoint(arguments.uri, directory, arguments.checkpoint, retries)
        case "source":
            return fetch_source(arguments.uri, directory, retries, has_optimizer_state=arguments.optimizer_state)
        case what:
            return fetch_one_model(arguments.uri, directory, retries, is_record_enough=what == "record")


def check_place(uri: str, name: str | None) -> str:
    """Check that runs can be kept below `uri`, and that none there is called `name`; return the URI in its normal form.

    Raises StoreError and RequestError.
    """
    retries = Retries(_tell, CHECK_SECONDS)
    checked = check_store(uri, retries)
    if name is not None:
        store = ObjectStore(f"{checked}/{name}")
        if retries.run(lambda: store.read_bytes("spec.json")) is not None:
            valid = f"another --run-directory, or this run with `dlrm resume {store.uri}`"
            raise StoreError(f"{store.uri}: there is a run of this name already", valid)
    return checked


def fetch_run(uri: str, path: Path, retries: Retries) -> dict[str, Any]:
    """Fetch a run, with all its complete checkpoints and its model, to a run directory, as far as that lacks them.

    Raises StoreError, RequestError, RunInUseError and OSError.
    """
    store, directory = _open_run(uri, retries), RunDirectory(path)
    record = RunStoreRecord.read(directory.run_store)
    if record is None:
        path.mkdir(parents=True, exist_ok=True)
        parent, run_id = split_run_uri(uri)
        record = RunStoreRecord(uri=parent, run_id=run_id)
        record.write(directory.run_store)
    if record.run_uri != store.uri:
        raise StoreError(f"{path}: is the directory of {record.run_uri}", "another --run-directory")
    with hold_run_lock(directory):
        is_later = fetch_small_files(store, directory, retries)
        fetch_checkpoints(store, directory, retries, replaces=False)
        if is_later or not directory.model.exists():
            part = path / "model.part"
            shutil.rmtree(part, ignore_errors=True)
            if fetch_model(store, part, retries):
                shutil.rmtree(directory.model, ignore_errors=True)
                part.rename(directory.model)
    return {"directory": str(path)}


def fetch_one_checkpoint(uri: str, path: Path, name: str | None, retries: Retries) -> dict[str, Any]:
    """Fetch one checkpoint of a run, its document, and the records of its model, if it has one.

    name: as `find_remote_step` takes it; None for the checkpoint of its model, or the newest one if it has no model.
    Raises StoreError, CheckpointFaultError, RequestError and OSError.
    """
    store, directory = _open_run(uri, retries), RunDirectory(path)
    fetch_small_files(store, directory, retries)
    for file in (CONFIG, METRICS):
        if f"{MODEL}/{file}" in retries.run(lambda: store.list_below(MODEL)):
            retries.run(lambda file=file: store.fetch_file(f"{MODEL}/{file}", directory.model / file))
    step = find_remote_step(store, name or _find_model_step(directory), retries)
    fetch_checkpoint(store, directory, step, retries)
    return {"checkpoint": str(directory.checkpoint(step))}


def fetch_one_model(uri: str, path: Path, retries: Retries, *, is_record_enough: bool) -> dict[str, Any]:
    """Fetch the model at `uri`, the one of a run or of its `model/`, to a new directory.

    is_record_enough: whether its `config.json` is all that is needed. Raises StoreError, RequestError and OSError.
    """
    uri = parse_uri(uri)
    store = ObjectStore(uri)
    names = retries.run(lambda: store.list_below(""))
    prefix = next((prefix for prefix in ("", f"{MODEL}/") if f"{prefix}{MODEL_MANIFEST}" in names), None)
    if prefix is None:
        valid = "s3://bucket/prefix/RUN/model of a run that has succeeded"
        raise StoreError(f"{uri}: has no complete model", valid)
    if is_record_enough:
        retries.run(lambda: store.fetch_file(f"{prefix}{CONFIG}", path / CONFIG))
    else:
        _tell(f"fetching the model from {uri}")
        fetch_model(store, path, retries, prefix.rstrip("/"))
    return {"directory": str(path), "is_run": bool(prefix)}


def fetch_source(uri: str, path: Path, retries: Retries, *, has_optimizer_state: bool) -> dict[str, Any]:
    """Fetch the model from which a run starts to the new directory `path`, laid out as a run directory.

    has_optimizer_state: whether its checkpoint is needed too. Raises StoreError, CheckpointFaultError, RequestError and
    OSError.
    """
    part = path.with_name(f"{path.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    is_run = fetch_one_model(uri, part / MODEL, retries, is_record_enough=False)["is_run"]
    if has_optimizer_state:
        if not is_run:
            raise StoreError(f"{uri}: is a model, which has no optimizer state", "s3://bucket/prefix/RUN of its run")
        fetch_one_checkpoint(uri, part, None, retries)
    part.rename(path)
    return {"directory": str(path)}


def upload_run(directory: RunDirectory) -> dict[str, Any]:
    """Upload what a run has left in its directory, until all is in its bucket; tries again for ever.

    Nothing is uploaded where the run has gone on elsewhere: what is there is newer. Raises StoreError, LeaseHeldError,
    LeaseLostError, RunInUseError and OSError.
    """
    record = RunStoreRecord.read(directory.run_store) if directory.path.is_dir() else None
    if record is None:
        valid = "the directory of a run that was trained with --run-store"
        raise StoreError(f"{directory.path}: is kept in no bucket", valid)
    number = find_newest_attempt(path.name for path in directory.path.glob("attempt-*"))
    part = UploadPart(number or None, record.node or 0, is_shared=record.node is None)
    store, retries = ObjectStore(record.run_uri), Retries(_tell, math.inf)
    with hold_run_lock(directory, part.node):
        lease = RunLease(record.run_uri) if part.node == 0 else None
        if lease is not None:
            retries.run(lambda: lease.acquire(_tell))
        try:
            _check_is_newest(store, directory, number, retries)
            uploader = Uploader(store, directory, part, lease.require if lease else lambda: None, _tell_event)
            _upload_all(uploader, retries)
        finally:
            if lease is not None:
                lease.release()
    return {"uri": record.run_uri}


def _check_is_newest(store: ObjectStore, directory: RunDirectory, number: int, retries: Retries) -> None:
    """Raise LaterAttemptError if `store` has a later attempt than `number`, or a newer checkpoint than is here."""
    check_is_newest(store, number, retries)
    newest = find_newest_checkpoint(directory.checkpoints)
    steps = [step for step, is_complete in retries.run(lambda: list_remote_steps(store)).items() if is_complete]
    if steps and steps[0] > (newest.step if newest else 0):
        raise LaterAttemptError(store.uri, f"there is a newer checkpoint than here, of step {steps[0]:,}")


def _upload_all(uploader: Uploader, retries: Retries) -> None:
    while left := uploader.list_left().names:
        _tell(f"uploading {uploader.list_left().describe()}")
        retries.run(uploader.upload)
        if uploader.list_left().names == left:
            # Files of another node are missing.
            time.sleep(POLL_SECONDS)
    retries.run(uploader.upload_end)


def _open_run(uri: str, retries: Retries) -> ObjectStore:
    """Open the store of the run at `uri`. Raises StoreError if there is none."""
    store = ObjectStore("/".join(split_run_uri(uri)))
    if retries.run(lambda: store.read_bytes("spec.json")) is None:
        valid = "s3://bucket/prefix/RUN, as `dlrm train --run-store` wrote it"
        raise StoreError(f"{store.uri}: there is no run", valid)
    return store


def _find_model_step(directory: RunDirectory) -> str:
    """Return the name of the checkpoint that the model of a run was exported from; `newest` if none is recorded."""
    try:
        step = TrainedModel.find(directory.path).read_record().step
    except NoModelError:
        return "newest"
    return "newest" if step is None else f"step-{step}"


def _tell(message: str) -> None:
    print_line({"kind": "progress", "done_fraction": None, "message": message})


def _tell_event(name: str, message: str, **_: Any) -> None:
    print_line({"kind": "note", "name": name, "message": message})


if __name__ == "__main__":
    skip_last_collection()
    sys.exit(main())
