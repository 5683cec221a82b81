"""Resolution of the paths in a job document where the service does not see the files: by their names alone."""

import posixpath
from collections.abc import Sequence

from dlrm.config import ConfigError, FieldError, JobSpec
from dlrm.config.patterns import is_remote, is_under, normalise_uri
from service.jobs.paths import PathError


def resolve_unseen_paths(job: JobSpec, roots: Sequence[str]) -> JobSpec:
    """Return `job` with every data path as an absolute path, or URI, under one of the `roots`.

    A relative path is one under the only directory among the roots. Whether there are such files, and whether links
    lead out of the roots, is checked by the trainer. Raises ConfigError that names every invalid path.
    """
    errors: list[FieldError] = []
    resolved: dict[str, list[str]] = {}
    for name, patterns in {"train": job.data.train, "eval": job.data.eval}.items():
        for number, pattern in enumerate(patterns or []):
            try:
                resolved.setdefault(name, []).append(resolve_unseen_path(pattern, roots))
            except (PathError, ValueError) as error:
                valid = f"a path or URI under {' or '.join(roots)}" if roots else "data.synthetic, as no data is set up"
                errors.append(FieldError(f"data.{name}.{number}", str(error), valid))
    if errors:
        raise ConfigError(errors)
    return job.model_copy(update={"data": job.data.model_copy(update=resolved)})


def resolve_unseen_path(pattern: str, roots: Sequence[str]) -> str:
    """Return the path or URI for which `pattern` stands. Raises PathError, and ValueError if it is no URI."""
    if is_remote(pattern):
        uri = normalise_uri(pattern)
        if any(is_under(uri, normalise_uri(root)) for root in roots if is_remote(root)):
            return uri
        raise PathError(f"{pattern!r} is outside the data roots")
    if "\0" in pattern:
        raise PathError(f"{pattern!r} is not a path")
    directories = [root for root in roots if not is_remote(root)]
    if not posixpath.isabs(pattern):
        if len(directories) != 1:
            raise PathError(f"{pattern!r} is relative, and there is not one data directory alone; write it in full")
        pattern = posixpath.join(directories[0], pattern)
    path = posixpath.normpath(pattern)
    if any(part.startswith(".") for part in path.split("/")):
        raise PathError(f"{pattern!r} contains a name that starts with a dot; data must not be hidden")
    if not any(path == root or path.startswith(f"{root}/") for root in directories):
        raise PathError(f"{pattern!r} is outside the data roots")
    return path
