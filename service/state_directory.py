"""The directories that the service keeps its state in."""

from pathlib import Path


class StateDirectoryError(Exception):
    """The service cannot use the directory that it should keep its state in."""

    @classmethod
    def of(cls, variable: str, path: Path, error: OSError) -> "StateDirectoryError":
        """variable: the environment variable that names `path`."""
        where = "" if error.filename in {None, str(path)} else f" ({error.filename})"
        return cls(
            f"{variable}: cannot use {path}: {error.strerror}{where}; name a directory that the service may write"
        )


def make_state_directory(path: Path, variable: str = "DLRM_STATE_DIRECTORY") -> None:
    """Make `path` where it is not there yet, for its owner alone: keys and the data of jobs lie below it.

    variable: the environment variable that names it. Raises StateDirectoryError.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StateDirectoryError.of(variable, path, error) from error
