"""Discovery of the service's URL and API key, so that a user need not name them.

URL and key are searched for separately, each in this order:

1. the argument of the caller;
2. the environment variable, DLRM_URL or DLRM_API_KEY; an empty one is refused, because a script that means to set it
   and fails would otherwise act with the saved admin key;
3. the files that `dlrm serve` writes to its state directory, readable only by its own user. This is the directory in
   DLRM_STATE_DIRECTORY, otherwise `.dlrm` in the current directory or in the nearest parent directory.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dlrm.record import write_atomically

STATE_DIRECTORY = ".dlrm"
ADMIN_KEY_FILE = "admin-key"
DEFAULT_PORTS = {"http": 80, "https": 443}
URL_VARIABLE = "DLRM_URL"
KEY_VARIABLE = "DLRM_API_KEY"
_VISIBLE = re.compile(r"[!-~]+")
"""Characters of an API key: those that the header of a request can carry."""
_KEY_PREFIX = "dlrm_"


class ServiceUnknownError(Exception):
    """Error raised if neither the caller, the environment nor a state directory names a service."""


@dataclass(frozen=True)
class Connection:
    """URL of a service, such as http://127.0.0.1:8080, and an API key for it."""

    url: str
    api_key: str = field(repr=False)


class ReadyFile(BaseModel):
    """Content of the ready file, which a service writes once it accepts requests."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    url: str
    admin_key: str | None = Field(default=None, repr=False)
    """Admin API key; None unless this was the first start on the state directory."""

    @classmethod
    def read(cls, path: Path) -> "ReadyFile | None":
        """Read the ready file at `path`; return None if it is missing, unreadable or invalid."""
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

    Raises ServiceUnknownError, with a message that names the remedy, if URL or key cannot be found.
    """
    url, url_origin = _find_given(url, "url", URL_VARIABLE)
    api_key, key_origin = _find_given(api_key, "api_key", KEY_VARIABLE)
    if url is not None:
        url = _normalise_url(url, url_origin)
    if url is None or api_key is None:
        saved = _read_connection(state_directory)
        # A key is sent only to the service that created it.
        if saved and url in (None, _normalise_url(saved.url, "ready.json")):
            url = saved.url
            if api_key is None and saved.api_key:
                api_key, key_origin = saved.api_key, "the saved API key"
    if url is None:
        raise ServiceUnknownError(
            "no service found: start one with `dlrm serve` in this directory, or set DLRM_URL and DLRM_API_KEY, or "
            "DLRM_STATE_DIRECTORY to the state directory of a service on this machine"
        )
    if api_key is None:
        raise ServiceUnknownError(f"no API key found for {url}: set DLRM_API_KEY")
    return Connection(url, _check_key(api_key, key_origin))


def _find_given(given: str | None, argument: str, variable: str) -> tuple[str | None, str]:
    """Return the argument, or else the environment variable, without the white space around it, and which one it is.

    The value is None if neither is given. Raises ServiceUnknownError if it is empty.
    """
    origin = variable if given is None else argument
    value = os.environ.get(variable) if given is None else given
    if value is None:
        return None, origin
    if not value.strip():
        remedy = f"set it, or unset {variable} to use" if given is None else "omit it to use"
        raise ServiceUnknownError(f"{origin}: is empty; {remedy} what `dlrm serve` has saved")
    return value.strip(), origin


def _check_key(api_key: str, origin: str) -> str:
    """Return the API key. Raises ServiceUnknownError, without the key in it, if no header can carry it."""
    if _VISIBLE.fullmatch(api_key):
        return api_key
    raise ServiceUnknownError(
        f"{origin}: has a character that no API key has (valid: a line such as dlrm_…, as `dlrm keys create` prints it)"
    )


def _normalise_url(url: str, origin: str) -> str:
    """Return the URL in a normal form, so that equal URLs compare equal: without a trailing slash, capitals in the host
    or the default port. Raises ServiceUnknownError if it is invalid.

    origin: origin of the URL, for the error message.
    """
    # Whoever mixes up the two variables must not find the key in a log.
    shown = "this" if _KEY_PREFIX in url or "@" in url else repr(url)
    error = ServiceUnknownError(f"{origin}: {shown} is not a URL (valid: http://host:port)")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise error from None
    name = parts.hostname
    if parts.scheme not in DEFAULT_PORTS or not name or not _is_host(name) or not url.isprintable():
        raise error
    host = f"[{name}]" if ":" in name else name
    address = host if port in (None, DEFAULT_PORTS[parts.scheme]) else f"{host}:{port}"
    return f"{parts.scheme}://{address}{parts.path.rstrip('/')}"


def _is_host(host: str) -> bool:
    """Whether a URL can have this host, in letters of any language."""
    try:
        return _VISIBLE.fullmatch(host.encode("idna").decode()) is not None
    except UnicodeError:
        return False


def _read_connection(state_directory: Path | None) -> Connection | None:
    """Read URL and key from the files of a service in the state directory; None if absent.

    The key is empty if none was saved.
    """
    chosen = state_directory or os.environ.get("DLRM_STATE_DIRECTORY")
    current = Path.cwd()
    candidates = [Path(chosen)] if chosen else [path / STATE_DIRECTORY for path in (current, *current.parents)]
    for candidate in candidates:
        ready = ReadyFile.read(get_ready_file_path(candidate))
        if ready:
            return Connection(ready.url, (ready.admin_key or "").strip() or _read_admin_key(candidate))
    return None


def _read_admin_key(state_directory: Path) -> str:
    try:
        return (state_directory / ADMIN_KEY_FILE).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
