"""The client of a command, which says on stderr that it waits for a service that is silent."""

from cli.local.console import console_on
from cli.local.progress import format_duration
from service.client import Client

MAX_WAIT_SECONDS = 30.0
"""Seconds that a command waits for one answer, unless it follows a job."""


def connect(timeout_seconds: float = MAX_WAIT_SECONDS, url: str | None = None) -> Client:
    """Connect to the service. Raises ServiceUnknownError if its URL or API key cannot be found, or is invalid.

    timeout_seconds: longest time that a request waits for an answer. url: of the service; None if it is to be found.
    """
    return Client(url, timeout_seconds=timeout_seconds, on_silence=_tell_silence)


def _tell_silence(url: str, seconds_left: float) -> None:
    line = f"waiting for the service at {url} for up to {format_duration(seconds_left)}"
    console_on(stderr=True).print(line, highlight=False, markup=False, soft_wrap=True)
