"""Creation of the directories in which the service keeps its state."""

from pathlib import Path


class StateDirectoryError(Exception):
    """Error raised where the service cannot use a directory for its state."""

    @classmethod
    def from_os_error(cls, variable: str, path: Path, error: OSError) -> "StateDirectoryError":
        """Return the error for `path`. variable: environment variable that sets it. error: its cause."""
        failed_path = "" if error.filename in {None, str(path)} else f" ({error.filename})"
        cause = f"{error.strerror}{failed_path}"
        return cls(f"{variable}: cannot use {path}: {cause}; choose a directory that the service can write to")


def make_state_directory(path: Path, variable: str = "DLRM_STATE_DIRECTORY") -> None:
    """Create `path` if it does not exist yet, accessible only to its owner: it contains keys and data of jobs.

    variable: environment variable that sets it. Raises StateDirectoryError.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StateDirectoryError.from_os_error(variable, path, error) from error
