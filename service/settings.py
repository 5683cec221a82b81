"""What the service is told from outside: environment variables with the prefix DLRM_."""

import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from dlrm.config.patterns import is_remote, normal_uri
from hostinfo import limits


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


_BETWEEN_ROOTS = re.compile(rf"{re.escape(os.pathsep)}(?!//)")
"""As in PATH; the colon of a scheme such as s3:// is none."""


def _split_roots(value: Any) -> Any:
    return _BETWEEN_ROOTS.split(value) if isinstance(value, str) else value


def _data_root(root: str) -> str:
    if not root.strip():
        raise PydanticCustomError("no_directory", "should be no empty text; the working directory is a dot")
    if is_remote(root):
        return normal_uri(root)
    path = _absolute(Path(root))
    if not path.is_dir():
        raise PydanticCustomError("no_directory", "should be a directory that exists, or a URI such as s3://bucket/key")
    return str(path)


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
DataRoot = Annotated[str, BeforeValidator(os.fspath), AfterValidator(_data_root)]


class StateSettings(BaseSettings):
    """Where state is kept: what the service and the commands that do without it have in common."""

    model_config = SettingsConfigDict(env_prefix="DLRM_", frozen=True, validate_default=True)

    state_directory: AbsolutePath = Path(".dlrm")
    """Where the service keeps what it knows; one service at a time."""
    prepared_directory: AbsolutePath = Field(default_factory=lambda data: data["state_directory"] / "prepared")
    """Data that was prepared for training, by its content: every job on the same data uses it."""


class Settings(StateSettings):
    """Settings of one service."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65_535)
    """0 takes a free port."""
    database_url: str = Field(
        default_factory=lambda data: f"sqlite:///{data['state_directory'] / 'service.sqlite3'}", min_length=1
    )
    """SQLAlchemy's form: `sqlite:///…` or `postgresql+psycopg://…`."""
    runs_directory: AbsolutePath = Field(default_factory=lambda data: data["state_directory"] / "runs")
    """Where every job gets a directory of its own."""
    data_roots: Annotated[list[DataRoot], NoDecode, BeforeValidator(_split_roots)] = Field(default=["."], min_length=1)
    """Directories, and URIs such as s3://bucket/key, that the data of jobs must lie in; in the environment separated as
    in PATH."""
    num_cores: int = Field(default_factory=limits.num_cores, ge=1)
    """Cores that jobs may occupy."""
    memory_bytes: int = Field(default_factory=limits.memory_bytes, ge=1)
    """Memory that jobs may occupy."""
    num_gpus: int = Field(default_factory=limits.num_gpus, ge=0)
    """GPUs that jobs may occupy."""
    trainer_python: AbsolutePath = Path(sys.executable)
    """The interpreter that has the trainer installed."""
    reconcile_interval_seconds: float = Field(default=2.0, gt=0.0)
    """Pause between two comparisons of the job table with what runs."""
    grace_period_seconds: float = Field(default=120.0, ge=0.0)
    """What a job that was asked to stop has for its last checkpoint, before it is killed."""
    restart_delay_seconds: float = Field(default=10.0, ge=0.0, le=86_400.0)
    """What a job waits before its first restart; twice as long before each one that follows, until an attempt has
    written a checkpoint of a later step than it began at."""
    max_restart_delay_seconds: float = Field(default=300.0, ge=0.0, le=86_400.0)
    """The longest wait before a restart."""
    max_body_bytes: int = Field(default=2**20, ge=1024)
    """Largest request, reports of a running job excepted."""
    log_format: Literal["console", "json"] = "console"

    @property
    def private_directories(self) -> list[Path]:
        """What belongs to the service itself: no job reads data from there."""
        return [self.state_directory, self.runs_directory, self.prepared_directory]

    @property
    def url(self) -> str:
        """Where programs on this machine reach the service."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"
