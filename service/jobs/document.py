"""Job documents that the service accepts, and how they are resolved for the launcher of the job."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlrm.config import ConfigError, FieldError, JobSpec, ResolvedJob, parse_job, resolve
from service.jobs.paths import resolve_paths, resolve_roots, resolve_unseen_paths
from service.launchers.protocol import Launcher
from service.launchers.registry import Launchers

MAX_PATTERNS = 1_000
"""Largest number of files, directories and patterns of the training rows, and of the evaluation rows. A run on one
machine may have more: the service looks for the files of any user's job while it answers."""


def parse_document(document: Mapping[str, Any]) -> JobSpec:
    """Parse a job document that was sent to the service.

    Raises ConfigError if it is invalid, or names more files or patterns than the service looks for.
    """
    spec = parse_job(document)
    numbers = {"data.train": len(spec.data.train), "data.eval": len(spec.data.eval or [])}
    errors = [
        FieldError(field, f"has {number:,} entries", f"at most {MAX_PATTERNS:,}")
        for field, number in numbers.items()
        if number > MAX_PATTERNS
    ]
    if errors:
        raise ConfigError(errors)
    return spec


def resolve_job_paths(job: JobSpec, launcher: Launcher, roots: Sequence[str], private: Sequence[Path]) -> JobSpec:
    """Return `job` with every data path as its attempts need it.

    roots: data roots that its owner may read. private: directories of the service itself. Raises ConfigError that
    names every invalid path.
    """
    return resolve_paths(job, roots, private) if launcher.shares_files else resolve_unseen_paths(job, roots)


def resolve_for_launcher(
    job: JobSpec, launcher: Launcher, roots: Sequence[str], *, uses_prepared: bool = True
) -> ResolvedJob:
    """Resolve a job whose paths are resolved. The trainer reads below `roots` alone.

    uses_prepared: whether rows are looked for among the prepared ones that jobs share.
    """
    real_roots = resolve_roots(roots) if launcher.shares_files else list(roots)
    return resolve(job, real_roots, launcher.places.prepared_directory if uses_prepared else None)


def resolve_launcher(spec: JobSpec, launchers: Launchers) -> str:
    """Return the name of the launcher that starts a job.

    Raises ConfigError if the service has none of that name, or if that one does not allow the job's placement.
    """
    name = launchers.resolve(spec.resources.launcher)
    if name not in launchers:
        message, valid = f"this service has no launcher {name}", ", ".join(["auto", *launchers])
        raise ConfigError([FieldError("resources.launcher", message, valid)])
    if faults := launchers[name].list_faults(spec.resources.kubernetes):
        raise ConfigError(faults)
    return name


def choose_machines(job: JobSpec, launcher: str) -> JobSpec:
    """Return `job` with one machine of a range that begins with one, where the launcher starts jobs on one alone."""
    numbers = job.resources.node_range
    if launcher != "local" or numbers[0] > 1 or len(numbers) == 1:
        return job
    return job.model_copy(update={"resources": job.resources.with_present(1)})
