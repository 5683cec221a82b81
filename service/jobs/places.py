"""Places of a job's files, as its attempts see them: on this machine, or where the service does not see them."""

from collections.abc import Sequence
from pathlib import Path

from dlrm.config import JobSpec, ResolvedJob, resolve
from service.jobs.paths import resolve_paths, resolve_roots
from service.jobs.unseen_paths import resolve_unseen_paths
from service.launchers.protocol import Launcher


def resolve_job_paths(job: JobSpec, launcher: Launcher, private: Sequence[Path]) -> JobSpec:
    """Return `job` with every data path as its attempts need it. private: directories of the service itself.

    Raises ConfigError that names every invalid path.
    """
    roots = launcher.places.data_roots
    return resolve_paths(job, roots, private) if launcher.shares_files else resolve_unseen_paths(job, roots)


def resolve_for_launcher(job: JobSpec, launcher: Launcher, *, uses_prepared: bool = True) -> ResolvedJob:
    """Resolve a job whose paths are resolved, with the data roots of its launcher.

    uses_prepared: whether rows are looked for among the prepared ones that jobs share.
    """
    places = launcher.places
    roots = resolve_roots(places.data_roots) if launcher.shares_files else list(places.data_roots)
    return resolve(job, roots, places.prepared_directory if uses_prepared else None)
