"""Data paths of a job: where they lie under the data roots."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from dlrm.config import ConfigError, FieldError, JobSpec
from dlrm.config.patterns import is_remote, lies_under, local_files, normal_uri

PACKED_META = "meta.json"
"""The file that a directory of prepared data is known by."""


def with_absolute_paths(job: JobSpec, roots: Sequence[str]) -> JobSpec:
    """The same job with every file, directory or pattern absolute and under the real path of one of `roots`.

    A relative path counts from each root of this machine in turn. A remote path must lie under a remote root; whether
    it is there the trainer will see. Raises ConfigError naming every path at fault.
    """
    errors: list[FieldError] = []
    names = {"train": job.data.train, "eval": job.data.eval}
    resolved = {
        name: [_resolve(f"data.{name}.{place}", pattern, job, roots, errors) for place, pattern in enumerate(patterns)]
        for name, patterns in names.items()
        if patterns
    }
    if errors:
        raise ConfigError(errors)
    return job.model_copy(update={"data": job.data.model_copy(update=resolved)})


def real_roots(roots: Sequence[str]) -> list[str]:
    """The roots as a trainer gets them: real paths, and URIs as they are."""
    return [root if is_remote(root) else os.path.realpath(root) for root in roots]


class _PathError(ValueError):
    pass


def _resolve(field: str, pattern: str, job: JobSpec, roots: Sequence[str], errors: list[FieldError]) -> str:
    try:
        if is_remote(pattern):
            return _remote(pattern, job, roots)
        return _local(pattern, job, [Path(root) for root in roots if not is_remote(root)])
    except _PathError as error:
        what = "a directory that `dlrm prepare` has written" if _is_packed(job) else "a file, directory or pattern"
        errors.append(FieldError(field, str(error), f"{what} under {' or '.join(roots)}"))
        return pattern


def _remote(pattern: str, job: JobSpec, roots: Sequence[str]) -> str:
    if _is_packed(job):
        raise _PathError(f"{pattern!r} is remote: prepared data is mapped into memory")
    try:
        uri = normal_uri(pattern)
    except ValueError as error:
        raise _PathError(str(error)) from None
    if not any(lies_under(uri, root) for root in roots if is_remote(root)):
        raise _PathError(f"{pattern!r} lies outside of the data roots")
    return uri


def _local(pattern: str, job: JobSpec, roots: Sequence[Path]) -> str:
    if not pattern or "\0" in pattern:
        raise _PathError(f"{pattern!r} is no path")
    # By its name first, without following links: what lies outside is not even looked at.
    candidates = [candidate for root in roots if (candidate := _under_root(pattern, root))]
    if not candidates:
        raise _PathError(f"{pattern!r} lies outside of the data roots")
    for candidate in candidates:
        try:
            files = _files(candidate, job)
        except OSError as error:
            raise _PathError(f"{pattern!r} cannot be read: {error.strerror}") from None
        if files:
            _check_links(pattern, files, roots)
            return candidate
    raise _PathError(f"{pattern!r} {_what_is_missing(pattern, job)}")


def _under_root(pattern: str, root: Path) -> str | None:
    """`pattern` under the real path of `root`; None where it lies outside."""
    path = Path(os.path.normpath(root / pattern))
    real_root = root.resolve()
    for name_of_root in (root, real_root):
        if path.is_relative_to(name_of_root):
            return str(real_root / path.relative_to(name_of_root))
    return None


def _files(path: str, job: JobSpec) -> list[Path]:
    if _is_packed(job) and not Path(path, PACKED_META).is_file():
        return []
    # A link that leads nowhere is no file.
    return [file for file in local_files(path) if file.is_file()]


def _check_links(pattern: str, files: Sequence[Path], roots: Sequence[Path]) -> None:
    real = [root.resolve() for root in roots]
    for file in files:
        if not any(file.resolve().is_relative_to(root) for root in real):
            raise _PathError(f"{pattern!r} leads outside of the data roots, by the link {file}")


def _what_is_missing(pattern: str, job: JobSpec) -> str:
    if _is_packed(job):
        return f"is no directory with a {PACKED_META}"
    return "matches no file" if glob.has_magic(pattern) else "is no file, and no directory with files"


def _is_packed(job: JobSpec) -> bool:
    return job.data.format == "packed"
