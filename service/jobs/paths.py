"""Data paths of a job: where they lie under the data roots."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from dlrm.config import ConfigError, FieldError, JobSpec


def with_absolute_paths(job: JobSpec, roots: Sequence[Path]) -> JobSpec:
    """The same job with every file or pattern absolute and under the real path of one of `roots`.

    A relative path counts from each root in turn. Raises ConfigError naming every path at fault.
    """
    errors: list[FieldError] = []
    train = _resolve_all("data.train", job.data.train, roots, errors)
    evaluation = None if job.data.eval is None else _resolve_all("data.eval", job.data.eval, roots, errors)
    if errors:
        raise ConfigError(errors)
    return job.model_copy(update={"data": job.data.model_copy(update={"train": train, "eval": evaluation})})


def _resolve_all(field: str, patterns: Sequence[str], roots: Sequence[Path], errors: list[FieldError]) -> list[str]:
    resolved: list[str] = []
    for index, pattern in enumerate(patterns):
        try:
            resolved.append(_resolve(pattern, roots))
        except _PathError as error:
            valid = f"a file or pattern under {' or '.join(str(root) for root in roots)}"
            errors.append(FieldError(f"{field}.{index}", str(error), valid))
    return resolved


class _PathError(ValueError):
    pass


def _resolve(pattern: str, roots: Sequence[Path]) -> str:
    if "\0" in pattern:
        raise _PathError(f"{pattern!r} is no path")
    # By its name first, without following links: what lies outside is not even looked at.
    candidates = [candidate for root in roots if (candidate := _under_root(pattern, root))]
    if not candidates:
        raise _PathError(f"{pattern!r} lies outside of the data roots")
    for candidate in candidates:
        if files := _files(candidate):
            _check_links(pattern, files, roots)
            return candidate
    raise _PathError(f"{pattern!r} {'matches no file' if glob.has_magic(pattern) else 'is no file'}")


def _under_root(pattern: str, root: Path) -> str | None:
    """`pattern` under the real path of `root`; None where it lies outside."""
    path = Path(os.path.normpath(root / pattern))
    real_root = root.resolve()
    for name_of_root in (root, real_root):
        if path.is_relative_to(name_of_root):
            return str(real_root / path.relative_to(name_of_root))
    return None


def _files(path: str) -> list[Path]:
    found = sorted(Path(name) for name in glob.glob(path, recursive=True))  # noqa: PTH207
    return [file for file in found if file.is_file()]


def _check_links(pattern: str, files: Sequence[Path], roots: Sequence[Path]) -> None:
    for file in files:
        if not any(file.resolve().is_relative_to(root.resolve()) for root in roots):
            raise _PathError(f"{pattern!r} leads outside of the data roots, by the link {file}")
