"""Discovery of the service's URL and API key, so that a user need not name them.

URL and key are searched for separately, each in this order:

1. the argument of the caller;
2. the environment variable, DLRM_URL or DLRM_API_KEY;
3. the files that `dlrm serve` writes to its state directory, readable only by its own user. This is the directory in
   DLRM_STATE_DIRECTORY, otherwise `.dlrm` in the current directory or in the nearest parent directory.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from dlrm.record import write_atomically

STATE_DIRECTORY = ".dlrm"
ADMIN_KEY_FILE = "admin-key"
DEFAULT_PORTS = {"http": 80, "https": 443}


class ServiceUnknownError(Exception):
    """Error raised where neither the caller, the environment nor a state directory names a service."""


@dataclass(frozen=True)
class Connection:
    """URL of a service, such as http://127.0.0.1:8080, and an API key for it."""

    url: str
    api_key: str


class ReadyFile(BaseModel):
    """Content of the ready file, which a service writes once it accepts requests."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    url: str
    admin_key: str | None = None
    """Admin API key; None unless this was the first start on the state directory."""

    @classmethod
    def read(cls, path: Path) -> "ReadyFile | None":
        """Read the ready file at `path`; return None where it is missing, unreadable or invalid."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            return None


def get_ready_file_path(state_directory: Path) -> Path:
    """Return the path of the file in which `dlrm serve` writes how to reach it."""
    return state_directory / "ready.json"


def save_admin_key(state_directory: Path) -> None:
    """Copy the admin key of the first start to a file of its own, before the next start overwrites the ready file."""
    ready = ReadyFile.read(get_ready_file_path(state_directory))
    if ready and ready.admin_key:
        write_atomically(state_directory / ADMIN_KEY_FILE, ready.admin_key, mode=0o600)


def find_connection(
    url: str | None = None, api_key: str | None = None, state_directory: Path | None = None
) -> Connection:
    """Find the URL and the API key of the service to use.

    Raises ServiceUnknownError, with a message that names the remedy, where URL or key cannot be found.
    """
    origin = "url" if url else "DLRM_URL"
    url = url or os.environ.get("DLRM_URL")
    if url:
        url = _normalise_url(url, origin)
    api_key = api_key or os.environ.get("DLRM_API_KEY")
    if not (url and api_key):
        saved = _read_connection(state_directory)
        # A key is sent only to the service that created it.
        if saved and url in (None, _normalise_url(saved.url, "ready.json")):
            url, api_key = saved.url, api_key or saved.api_key
    if not url:
        raise ServiceUnknownError(
            "no service found: start one with `dlrm serve` in this directory, or set DLRM_URL and DLRM_API_KEY"
        )
    if not api_key:
        raise ServiceUnknownError(f"no API key found for {url}: set DLRM_API_KEY")
    return Connection(url, api_key)


def _normalise_url(url: str, origin: str) -> str:
    """Return the URL in a normal form, so that equal URLs compare equal: without a trailing slash, capitals in the host
    or the default port. Raises ServiceUnknownError where it is invalid.

    place: origin of the URL, for the error message.
    """
    error = ServiceUnknownError(f"{origin}: {url!r} is not a URL (valid: http://host:port)")
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        raise error from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise error
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    address = host if port in (None, DEFAULT_PORTS[parts.scheme]) else f"{host}:{port}"
    return f"{parts.scheme}://{address}{parts.path.rstrip('/')}"


def _read_connection(state_directory: Path | None) -> Connection | None:
    """Read URL and key from the files of a service in the state directory; None where there are none.

    The key is empty where none was saved.
    """
    chosen = state_directory or os.environ.get("DLRM_STATE_DIRECTORY")
    current = Path.cwd()
    candidates = [Path(chosen)] if chosen else [path / STATE_DIRECTORY for path in (current, *current.parents)]
    for candidate in candidates:
        ready = ReadyFile.read(get_ready_file_path(candidate))
        if ready:
            return Connection(ready.url, ready.admin_key or _read_admin_key(candidate))
    return None


def _read_admin_key(state_directory: Path) -> str:
    try:
        return (state_directory / ADMIN_KEY_FILE).read_text().strip()
    except OSError:
        return ""
