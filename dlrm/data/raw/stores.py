"""Object stores: S3 and Google Cloud Storage, with credentials only from the environment or its standard files."""

import functools
import os
import re
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

_URI = re.compile(r"(?P<scheme>s3|gs)://(?P<bucket>[A-Za-z0-9][A-Za-z0-9._-]*)(?:/(?P<key>.*))?", re.DOTALL)
_GCS_RETRY_SECONDS = 15
"""Seconds for which Google's client repeats a failed request; its default is 15 minutes."""
_REFUSALS = {
    "NO_SUCH_BUCKET": "its bucket does not exist",
    "ACCESS_DENIED": "the credentials do not permit it",
    "INVALID_ACCESS_KEY_ID": "the credentials are not known there",
    "SIGNATURE_DOES_NOT_MATCH": "the secret key does not fit the credentials",
    "HTTP response code 403": "the credentials do not permit it",
    "PERMISSION_DENIED": "the credentials do not permit it",
}
"""Sentences by words of errors that no later try would avoid."""


class StoreError(ValueError):
    """Object that cannot be opened: `message` gives the reason, `valid` a remedy or a valid name."""

    def __init__(self, message: str, valid: str) -> None:
        super().__init__(message, valid)
        self.message, self.valid = message, valid

    def __str__(self) -> str:
        return f"{self.message} (valid: {self.valid})"


def open_store(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of `uri`, and the path `bucket/key` in it.

    Raises StoreError if `uri` is invalid, or its store is not configured or cannot be reached.
    """
    found = _URI.fullmatch(uri)
    if not found:
        raise StoreError("is not the name of an object", "s3://bucket/key or gs://bucket/key, without credentials")
    scheme, bucket, key = found["scheme"], found["bucket"], (found["key"] or "").rstrip("/")
    # A store takes these parts literally, a file system does not: a name must not mean two different objects.
    if any(part in ("", ".", "..") for part in key.split("/") if key):
        raise StoreError('contains an empty part, "." or ".."', "a key of plain parts between single slashes")
    return _open_file_system(scheme, bucket), f"{bucket}/{key}" if key else bucket


def open_object(uri: str) -> pa.NativeFile:
    """Open an object to read its bytes, seekable. Raises StoreError, and OSError if it cannot be read."""
    store, path = open_store(uri)
    return store.open_input_file(path)


def explain_refusal(error: Exception) -> str | None:
    """Explain why a store refuses a request; None if it has failed otherwise, and a later try may succeed."""
    text = " ".join(str(error).split())
    return next((sentence for word, sentence in _REFUSALS.items() if word in text), None)


@functools.cache
def _open_file_system(scheme: str, bucket: str) -> fs.FileSystem:
    if scheme == "s3":
        _require_s3()
        uri = f"s3://{bucket}"
    else:
        _require_gcs()
        uri = f"gs://{bucket}?retry_limit_seconds={_GCS_RETRY_SECONDS}"
    try:
        return fs.FileSystem.from_uri(uri)[0]
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"its store cannot be reached: {error}", "a bucket that exists and may be read") from None


def clear_store_cache() -> None:
    """Clear the cache of opened stores, for use after their configuration has changed."""
    _open_file_system.cache_clear()


def _require_s3() -> None:
    configured = (
        _are_set("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        or _are_set("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN")
        or _are_set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        or _are_set("AWS_CONTAINER_CREDENTIALS_FULL_URI")
        or _is_file("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
        or _is_file("AWS_CONFIG_FILE", "~/.aws/config")
    )
    if not configured:
        valid = (
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_REGION and AWS_ENDPOINT_URL where needed), "
            "or keep credentials in ~/.aws/credentials, with AWS_PROFILE to choose"
        )
        raise StoreError("no credentials for s3:// are configured", valid)


def _require_gcs() -> None:
    standard = Path(os.environ.get("CLOUDSDK_CONFIG", "~/.config/gcloud")) / "application_default_credentials.json"
    if not _is_file("GOOGLE_APPLICATION_CREDENTIALS", str(standard)):
        valid = "set GOOGLE_APPLICATION_CREDENTIALS to a key file, or run `gcloud auth application-default login`"
        raise StoreError("no credentials for gs:// are configured", valid)


def _are_set(*names: str) -> bool:
    return all(os.environ.get(name) for name in names)


def _is_file(variable: str, standard: str) -> bool:
    return Path(os.environ.get(variable) or standard).expanduser().is_file()
