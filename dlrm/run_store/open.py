"""Opening of the store of a run, with errors that name the fix."""

import secrets

from dlrm.config.patterns import PatternError, check_scheme, hide_credentials, is_remote, normalise_uri
from dlrm.data.raw.stores import StoreError
from dlrm.record import RunDirectory, RunStoreRecord
from dlrm.run_store.fetch import Retries
from dlrm.run_store.objects import ObjectStore

_VALID = "s3://bucket/prefix or gs://bucket/prefix"


def parse_uri(uri: str) -> str:
    """Return the URI of a store without needless slashes. Raises StoreError if it is none."""
    shown = hide_credentials(uri)
    try:
        check_scheme(uri)
    except PatternError as error:
        raise StoreError(f"{shown}: {error.message}", error.valid) from None
    if not is_remote(uri):
        raise StoreError(f"{shown}: is no URI of a store", _VALID)
    try:
        return normalise_uri(uri)
    except ValueError:
        raise StoreError(f"{shown}: names no bucket", _VALID) from None


def check_store(uri: str, retries: Retries) -> str:
    """Check that objects below `uri` can be written, read, listed and removed; return the URI in its normal form.

    Raises StoreError if they cannot, and RequestError if the store does not answer.
    """
    uri = parse_uri(uri)
    try:
        store = ObjectStore(uri)
        if not retries.run(store.has_bucket):
            bucket = "/".join(uri.split("/")[:3])
            raise StoreError(f"{bucket}: the bucket does not exist", "a bucket that exists; it is not created here")
        name, content = f".dlrm-check-{secrets.token_hex(4)}", b"may be removed"
        retries.run(lambda: store.put_bytes(name, content))
        retries.run(lambda: store.read_bytes(name))
        retries.run(lambda: store.list_below(name))
        retries.run(lambda: store.remove(name))
    except StoreError as error:
        message = error.message if is_remote(error.message) else f"{uri}: {error.message}"
        raise StoreError(message, error.valid) from None
    return uri


def read_record(directory: RunDirectory, uri: str | None) -> RunStoreRecord | None:
    """Return the store of a run, which its directory names or `uri` names now; None if it has none.

    It is written to the directory where that names none yet. Raises StoreError if both name one and they differ, and
    OSError.
    """
    record = RunStoreRecord.read(directory.run_store)
    asked = parse_uri(uri) if uri else None
    if record is None and asked is not None:
        record = RunStoreRecord(uri=asked, run_id=directory.path.name)
        record.write(directory.run_store)
    if record is not None and asked is not None and asked != record.uri:
        message = f"{asked}: the run in {directory.path} is kept in {record.uri}"
        raise StoreError(message, f"{record.uri}, or no other store")
    return record


def split_run_uri(uri: str) -> tuple[str, str]:
    """Return the URI below which runs are kept, and the name of the run, of the URI of a run. Raises StoreError."""
    parent, _, run_id = parse_uri(uri).rpartition("/")
    if parent.endswith("/") or not run_id:
        raise StoreError(f"{uri}: names a bucket, and no run in it", "s3://bucket/prefix/RUN")
    return parent, run_id
