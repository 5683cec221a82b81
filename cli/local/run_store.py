"""Runs and models in a bucket: what a command needs of one is fetched by a program of the trainer."""

import os
import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from cli.local.child_program import ProgramStopped, run_program
from cli.local.errors import BadInputError
from cli.local.trainer import require_trainer
from dlrm.config.patterns import hide_credentials, is_remote, normalise_uri
from dlrm.record import EXIT_STOPPED, RUN_STORE_VARIABLE, RunDirectory, RunStoreRecord
from service.client.download import put_in_place

MODULE = "dlrm.programs.run_store"


def find_new_store(asked: str | None, run_directory: Path) -> RunStoreRecord | None:
    """Return the place in a bucket for a new run in `run_directory`, once it is checked; None if none is named.

    asked: value of --run-store; if that is None, the environment may name one. Raises CommandError.
    """
    uri = asked or os.environ.get(RUN_STORE_VARIABLE)
    if not uri:
        return None
    name = run_directory.resolve().name
    return RunStoreRecord(uri=str(_run(["check", uri, "--new-run", name], "checking")["uri"]), run_id=name)


def name_store(asked: str | None, directory: Path) -> None:
    """Name the bucket in which the resumed run in `directory` is kept from now on. Raises CommandError.

    asked: value of --run-store; the environment counts if that is None and the run is kept nowhere else yet.
    """
    place = RunDirectory(directory.resolve()).run_store
    record = _read_record(place)
    uri = asked or (os.environ.get(RUN_STORE_VARIABLE) if record is None else None)
    if not uri or not directory.is_dir():
        return
    if record is None:
        uri = str(_run(["check", uri, "--new-run", directory.resolve().name], "checking")["uri"])
        RunStoreRecord(uri=uri, run_id=directory.resolve().name).write(place)
    elif _normalise(uri) != record.uri:
        raise BadInputError(f"--run-store {hide_credentials(uri)}: {directory} is kept in {record.uri} (valid: that)")


def fetch_kept_run(directory: Path) -> None:
    """Fetch what the run in `directory` lacks, which may have gone on elsewhere, if it is kept in a bucket.

    Raises CommandError.
    """
    record = _read_record(RunDirectory(directory).run_store)
    if record is not None:
        fetch_run(record.run_uri, directory)


def fetch_run(uri: str, directory: Path) -> None:
    """Fetch a run from its bucket to `directory`, as far as that lacks it. Raises CommandError."""
    _run(["fetch", uri, str(directory.resolve()), "--what", "run"], "fetching")


def make_fetched_path(uri: str) -> Path:
    """Return the default directory for the run at `uri`. Raises BadInputError if that names none."""
    name = uri.rstrip("/").rpartition("/")[2]
    if uri.count("/", 0, len(uri.rstrip("/"))) < 3 or not name:
        raise BadInputError(f"{hide_credentials(uri)}: names no run (valid: s3://bucket/prefix/RUN)")
    return Path("runs") / name


def upload_run(directory: Path) -> str:
    """Upload what a run has left in its directory, and return the URI of the run. Raises CommandError."""
    return str(_run(["upload", str(directory)], "uploading")["uri"])


def fetch_model(uri: str, target: Path) -> None:
    """Fetch a model from its bucket to the directory `target`, in place of what was there. Raises CommandError."""
    part = target.with_name(f".{target.name}.fetched.part")
    shutil.rmtree(part, ignore_errors=True)
    _run(["fetch", uri, str(part.absolute()), "--what", "model"], "fetching")
    put_in_place(target, part)


@contextmanager
def local_model(model: str) -> Generator[Path]:
    """Yield the directory of a model, which is fetched for the block if it is in a bucket. Raises CommandError."""
    if not is_remote(model):
        yield Path(model)
        return
    with tempfile.TemporaryDirectory(prefix="dlrm-model-") as temporary:
        directory = Path(temporary) / "model"
        result = _run(["fetch", model, str(directory), "--what", "model"], "fetching")
        if result["is_run"]:
            raise BadInputError(f"{model}: is a run; its model is {model.rstrip('/')}/model")
        yield directory


@contextmanager
def local_checkpoint(run: str, checkpoint: str | None) -> Generator[tuple[Path, str | None]]:
    """Yield the directory of a run, and the checkpoint to open there; they are fetched if the run is in a bucket.

    checkpoint: name that the user gave; None if the model's checkpoint is wanted. Raises CommandError.
    """
    if not is_remote(run):
        yield Path(run), checkpoint
        return
    with tempfile.TemporaryDirectory(prefix="dlrm-run-") as temporary:
        options = [] if checkpoint is None else ["--checkpoint", checkpoint]
        arguments = ["fetch", run, temporary, "--what", "checkpoint", *options]
        yield Path(temporary), str(_run(arguments, "fetching")["checkpoint"])


@contextmanager
def local_record(model: str) -> Generator[Path]:
    """Yield a directory with the record of the model at the URI `model`, or of the run there. Raises CommandError."""
    with tempfile.TemporaryDirectory(prefix="dlrm-model-") as temporary:
        _run(["fetch", model, temporary, "--what", "record"], "fetching")
        yield Path(temporary)


def _read_record(path: Path) -> RunStoreRecord | None:
    """Read the reference of a run directory to its bucket. Raises BadInputError."""
    try:
        return RunStoreRecord.read(path)
    except NotADirectoryError:
        return None
    except OSError as error:
        raise BadInputError(str(error)) from None


def _normalise(uri: str) -> str:
    """Return a URI below which runs are kept in its normal form. Raises BadInputError."""
    try:
        if is_remote(uri):
            return normalise_uri(uri)
    except ValueError:
        pass
    raise BadInputError(
        f"{hide_credentials(uri)}: is no URI of a store (valid: s3://bucket/prefix, gs://bucket/prefix)"
    )


def _run(arguments: Sequence[str], label: str) -> dict[str, Any]:
    require_trainer("pyarrow")
    for argument in arguments:
        # Before a secret is among the arguments of a process, which all users of the machine may read.
        if (shown := hide_credentials(argument)) != argument:
            valid = "s3://bucket/prefix or gs://bucket/prefix; credentials come from the environment"
            raise BadInputError(f"{shown}: contains credentials or a port (valid: {valid})")
    try:
        return run_program(MODULE, arguments, None, label)
    except ProgramStopped:
        raise typer.Exit(EXIT_STOPPED) from None
