"""Where the service is and with which key, found the way a user expects.

In this order, each of the two on its own:

1. what the caller passes;
2. the environment variables DLRM_URL and DLRM_API_KEY;
3. what `dlrm serve` left, for its own user, in its state directory: the one named by DLRM_STATE_DIRECTORY, else `.dlrm`
   in the current directory or the nearest one above it.
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
    """Neither the caller, the environment nor a state directory names a service."""


@dataclass(frozen=True)
class Connection:
    """An address such as http://127.0.0.1:8080, and an API key."""

    url: str
    api_key: str


class Ready(BaseModel):
    """What a service writes when it answers."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    url: str
    admin_key: str | None = None
    """Null unless this was the first start on its state directory."""

    @classmethod
    def read(cls, path: Path) -> "Ready | None":
        """The content of `path`; None where there is none that can be read."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            return None


def ready_file_in(state_directory: Path) -> Path:
    """Where `dlrm serve` leaves how to reach it."""
    return state_directory / "ready.json"


def keep_admin_key(state_directory: Path) -> None:
    """Save the key of the first start, before another start overwrites the file that holds it."""
    ready = Ready.read(ready_file_in(state_directory))
    if ready and ready.admin_key:
        write_atomically(state_directory / ADMIN_KEY_FILE, ready.admin_key, mode=0o600)


def find_connection(
    url: str | None = None, api_key: str | None = None, state_directory: Path | None = None
) -> Connection:
    """The service to talk to; raises ServiceUnknownError with what would mend it."""
    place = "url" if url else "DLRM_URL"
    url = url or os.environ.get("DLRM_URL")
    if url:
        url = _checked_url(url, place)
    api_key = api_key or os.environ.get("DLRM_API_KEY")
    if not (url and api_key):
        left = _left_connection(state_directory)
        # A key is only ever sent to the service it was made by.
        if left and url in (None, _checked_url(left.url, "ready.json")):
            url, api_key = left.url, api_key or left.api_key
    if not url:
        raise ServiceUnknownError(
            "no service known: start one with `dlrm serve` in this directory, or set DLRM_URL and DLRM_API_KEY"
        )
    if not api_key:
        raise ServiceUnknownError(f"no API key known for {url}: set DLRM_API_KEY")
    return Connection(url, api_key)


def _checked_url(url: str, place: str) -> str:
    """The URL without what makes no difference: a slash at its end, capitals in its host, the default port."""
    bad = ServiceUnknownError(f"{place}: {url!r} is no URL (valid: http://host:port)")
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        raise bad from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise bad
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    address = host if port in (None, DEFAULT_PORTS[parts.scheme]) else f"{host}:{port}"
    return f"{parts.scheme}://{address}{parts.path.rstrip('/')}"


def _left_connection(state_directory: Path | None) -> Connection | None:
    """What a service left in the state directory; an empty key where its key was not kept."""
    named = state_directory or os.environ.get("DLRM_STATE_DIRECTORY")
    here = Path.cwd()
    candidates = [Path(named)] if named else [above / STATE_DIRECTORY for above in (here, *here.parents)]
    for candidate in candidates:
        ready = Ready.read(ready_file_in(candidate))
        if ready:
            return Connection(ready.url, ready.admin_key or _kept_admin_key(candidate))
    return None


def _kept_admin_key(state_directory: Path) -> str:
    try:
        return (state_directory / ADMIN_KEY_FILE).read_text().strip()
    except OSError:
        return ""
