"""Directories in which the service keeps its state; commands that work without a service share them."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "DLRM_"
"""Prefix of the environment variables of all settings."""


def make_absolute(path: Path) -> Path:
    """Make a path absolute; `~` is the home directory."""
    return path.expanduser().absolute()


AbsolutePath = Annotated[Path, AfterValidator(make_absolute)]


class StateSettings(BaseSettings):
    """Locations of state, shared by the service and the commands that work without one."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, validate_default=True, use_attribute_docstrings=True
    )

    state_directory: AbsolutePath = Path(".dlrm")
    """Directory for the state of the service; on SQLite only one service at a time may use it."""
    prepared_directory: AbsolutePath = Field(default_factory=lambda data: data["state_directory"] / "prepared")
    """Directory for prepared data, stored by its content, so that all jobs on the same data share it. By default
    `prepared` in the state directory."""


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
