"""Words that a shell completes from the service: ids of jobs, labels and names of artifacts."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

import typer

from service.client import Client

Item = TypeVar("Item")

MAX_JOBS = 100
"""Newest jobs whose ids are completed."""
MAX_LABELS = 1000
"""Labels that are completed."""
WAIT_SECONDS = 1.0
"""Longest time that a key press waits for the service."""


def complete_job_ids(incomplete: str) -> list[tuple[str, str]]:
    """List ids of jobs that begin so, the newest first, each with its name and state."""
    jobs = _ask(lambda client: islice(client.jobs(), MAX_JOBS))
    return [(job.id, f"{job.name} {job.state}") for job in jobs if job.id.startswith(incomplete)]


def complete_labels(incomplete: str) -> list[str]:
    """List labels that begin so: names with a colon, or names with their values once there is a colon."""
    labels = _ask(lambda client: islice(client.labels(), MAX_LABELS))
    texts = {f"{label.name}:{label.value}" if ":" in incomplete else f"{label.name}:" for label in labels}
    return sorted(text for text in texts if text.startswith(incomplete))


def complete_artifacts(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """List names of artifacts that begin so, each with its kind; their job stands before them."""
    job_id = context.params.get("job_id")
    artifacts = _ask(lambda client: client.artifacts(job_id)) if job_id else ()
    return [(found.name, found.kind) for found in artifacts if found.name.startswith(incomplete)]


def _ask(request: Callable[[Client], Iterable[Item]]) -> Iterator[Item]:
    """Yield what a request to the service yields; nothing more once it fails: a shell that completes says no word."""
    try:
        with Client(timeout_seconds=WAIT_SECONDS) as client:
            yield from request(client)
    except Exception:
        return
