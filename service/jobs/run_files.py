"""Removal of the run directory of a job, and of nothing else."""

import os
from collections.abc import Callable
from pathlib import Path

from service.jobs.models import Job


class RunDirectoryError(Exception):
    """Run directory that is not where this service keeps those of its jobs; it is not removed."""


def find_run_directory(job: Job, runs_directory: Path) -> Path:
    """Return the real path of the run directory of `job`, which need not exist.

    Raises RunDirectoryError if it is not directly below `runs_directory` with the id of the job as its name, and
    where it is a link or a file.
    """
    path, real_parent = Path(job.run_directory), runs_directory.resolve()
    if path.name != job.id or path.parent.resolve() != real_parent:
        raise RunDirectoryError(f"{path} is not a directory of {runs_directory} named as the job is")
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise RunDirectoryError(f"{path} is no directory: remove it yourself, and what it leads to")
    return real_parent / job.id


def remove_directory(path: Path, is_over: Callable[[], bool]) -> bool:
    """Remove a directory with everything in it, and return whether it is gone.

    Links are removed, and never followed. What is missing already is no error. Where something cannot be removed, the
    rest is, and then the first OSError is raised. After each file, `is_over` tells whether to leave the rest to a later
    call; this returns False then.
    """
    errors: list[OSError] = []
    # os.fwalk works with open directories: nobody can put a link in the place of one that is being walked.
    try:
        for _, directories, files, directory in os.fwalk(path, topdown=False, onerror=errors.append):
            for name in files + directories:
                try:
                    _remove_entry(name, directory)
                except OSError as error:
                    errors.append(error)
                if is_over():
                    return False
        path.rmdir()
    except OSError as error:
        errors.append(error)
    errors = [error for error in errors if not isinstance(error, FileNotFoundError)]
    if errors:
        raise errors[0]
    return True


def _remove_entry(name: str, directory: int) -> None:
    """Remove a file, a link or an empty directory. directory: descriptor of the directory in which it is."""
    try:
        os.unlink(name, dir_fd=directory)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=directory)
