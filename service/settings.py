"""Settings of the service, read from environment variables with the prefix DLRM_."""

import difflib
import os
import re
import socket
import sys
from collections.abc import Iterable
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError
from pydantic_settings import NoDecode

from dlrm.config.patterns import is_remote, normalise_uri
from dlrm.record.state_directory import PREFIX, AbsolutePath, StateSettings, make_absolute
from hostinfo import limits

_ROOT_SEPARATOR = re.compile(rf"{re.escape(os.pathsep)}(?!//)")
"""Separator of data roots, the same as in PATH; the colon of a scheme such as s3:// does not separate."""


def _split_roots(value: Any) -> Any:
    return _ROOT_SEPARATOR.split(value) if isinstance(value, str) else value


def _split_names(value: Any) -> Any:
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


def _parse_data_root(root: str) -> str:
    if not root.strip():
        raise PydanticCustomError("no_directory", "should not be empty; write . for the working directory")
    if is_remote(root):
        return normalise_uri(root)
    path = make_absolute(Path(root))
    if not path.is_dir():
        raise PydanticCustomError("no_directory", "should be an existing directory, or a URI such as s3://bucket/key")
    return str(path)


def _make_sqlite_url(state_directory: Path) -> str:
    return f"sqlite:///{quote(str(state_directory / 'service.sqlite3'))}"


def _check_addresses(addresses: str) -> str:
    for address in filter(None, addresses.split(",")):
        try:
            ip_network(address.strip(), strict=False)
        except ValueError:
            message = "should be addresses or networks such as 10.0.0.7 or 10.0.0.0/8, separated by commas"
            raise PydanticCustomError("no_address", message) from None
    return addresses


def _check_program(path: Path) -> Path:
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise PydanticCustomError("no_program", "should be the path of a program that can be run")
    return path


Program = Annotated[AbsolutePath, AfterValidator(_check_program)]
DataRoot = Annotated[str, BeforeValidator(os.fspath), AfterValidator(_parse_data_root)]


OTHER_VARIABLES = frozenset(
    {"DLRM_URL", "DLRM_API_KEY", "DLRM_SERVICE_ID", "DLRM_ATTEMPT_DIRECTORY", "DLRM_HEARTBEATS"}
)
"""Variables with the prefix that belong to the client or to an attempt, not to the settings of the service."""


class Settings(StateSettings):
    """Settings of one service."""

    host: str = "127.0.0.1"
    """Address to listen on. The service speaks plain HTTP: put a TLS proxy in front before it leaves loopback."""
    port: int = Field(default=8080, ge=0, le=65_535)
    """TCP port to listen on; 0 chooses a free one."""
    monitoring_port: int | None = Field(default=None, ge=0, le=65_535)
    """TCP port for monitoring alone: `/healthz`, `/readyz` and `/metrics` without a key. By default none; on `port` the
    metrics need a key."""
    monitoring_host: str = "127.0.0.1"
    """Address to listen on for monitoring."""
    database_url: str = Field(default_factory=lambda data: _make_sqlite_url(data["state_directory"]), min_length=1)
    """SQLAlchemy URL of the database: `sqlite:///…` or `postgresql+psycopg://…`. By default SQLite in the state
    directory."""
    runs_directory: AbsolutePath = Field(default_factory=lambda data: data["state_directory"] / "runs")
    """Parent directory of the run directories of all jobs. By default `runs` in the state directory."""
    data_roots: Annotated[list[DataRoot], NoDecode, BeforeValidator(_split_roots)] = Field(default=["."], min_length=1)
    """Directories, and URIs such as s3://bucket/key, under which the data of jobs must be. The environment variable
    separates them as PATH does."""
    access: AbsolutePath | None = None
    """File with the data roots that are not open to all, and their readers, as TOML. By default all are open to all."""
    launchers: Annotated[list[Literal["local", "kubernetes"]], NoDecode, BeforeValidator(_split_names)] = Field(
        default=["local"], min_length=1
    )
    """Launchers of jobs, separated by commas; jobs that name none get the first one."""
    kubernetes: AbsolutePath | None = None
    """File with the settings of the launcher for Kubernetes, as TOML."""
    kubernetes_image: str | None = Field(default=None, pattern=r"^\S+$")
    """Container image of the trainer, in place of `image` in that file."""
    num_cores: int = Field(default_factory=limits.count_cores, ge=1)
    """CPU cores that all jobs together may occupy. By default measured."""
    memory_bytes: int = Field(default_factory=limits.get_memory_bytes, ge=1)
    """Bytes of memory that all jobs together may occupy. By default measured."""
    num_gpus: int = Field(default_factory=limits.count_gpus, ge=0)
    """GPUs that all jobs together may occupy. By default measured."""
    node: str = Field(default_factory=socket.gethostname, min_length=1, max_length=255)
    """Name of this machine, by which a later process of the service knows the attempts started here. By default the
    host name; a container needs a name that stays, since its host name changes."""
    trainer_python: Program = Field(default_factory=lambda: Path(sys.executable))
    """Python interpreter that has the trainer installed. By default the one that runs the service."""
    worker_environment: Annotated[list[str], NoDecode, BeforeValidator(_split_names)] = Field(default=[])
    """Names of further environment variables of the service that workers inherit, separated by commas. Apart from
    these, workers inherit only PATH, HOME, and the variables of the interpreter, numeric libraries, CUDA and data
    stores."""
    reconcile_interval_seconds: float = Field(default=2.0, gt=0.0)
    """Seconds between two rounds of the control loop, which compares the job table with the running processes."""
    grace_period_seconds: float = Field(default=120.0, ge=0.0)
    """Seconds that a job has to save a last checkpoint after a stop request, before it is killed."""
    restart_delay_seconds: float = Field(default=10.0, ge=0.0, le=86_400.0)
    """Seconds that a job waits before its first restart. The wait doubles with every further restart, until an attempt
    has written a checkpoint of a later step than the one it started from."""
    max_restart_delay_seconds: float = Field(default=300.0, ge=0.0, le=86_400.0)
    """Longest wait before a restart, in seconds."""
    max_body_bytes: int = Field(default=2**20, ge=1024)
    """Largest request body in bytes; reports of a running job have a limit of their own."""
    audit_retention_days: int = Field(default=365, ge=1, le=36_500)
    """Days after which rows of the audit log are removed."""
    retention_days: float | None = Field(default=None, ge=0.0, le=36_500.0)
    """Days after its end for which a job stays; then the service deletes it. Null: for ever. A job with the label
    `keep = "true"` always stays, and so does one whose model a later job still needs."""
    retention_jobs_per_owner: int | None = Field(default=None, ge=0)
    """Ended jobs of one owner that stay, the latest; the service deletes further ones. Null: all."""
    retention_run_bytes: int | None = Field(default=None, ge=0)
    """Bytes that the run directories of ended jobs may have together on the disk of the service; beyond that it deletes
    the oldest ones. Null: no limit."""
    retention_point_days: float | None = Field(default=None, ge=0.0, le=36_500.0)
    """Days after the end of a job for which the raw points of its curves stay. Null: as long as the job."""
    requests_per_second: float = Field(default=100.0, gt=0.0)
    """Requests a second that one key may send; ten seconds' worth may come at once."""
    requests_per_second_per_address: float = Field(default=50.0, gt=0.0)
    """Requests a second without credentials that one network address may send; ten seconds' worth may come at once."""
    connections_per_second_per_address: float = Field(default=200.0, gt=0.0)
    """Connections a second that one network address may make, trusted proxies excepted; ten seconds' worth may come at
    once. Further ones are closed."""
    pushes_per_second: float = Field(default=500.0, gt=0.0)
    """Requests a second with reports that one attempt may send; ten seconds' worth may come at once."""
    failures_per_minute: float = Field(default=30.0, gt=0.0)
    """Requests a minute with wrong credentials that one network address may send. After more of them, wrong ones are
    refused as too many, and credentials that have not been right before are looked up one at a time there. Right ones
    are never refused."""
    trusted_proxies: Annotated[str, AfterValidator(_check_addresses)] = ""
    """Addresses or networks of reverse proxies, separated by commas, whose X-Forwarded-For and X-Forwarded-Proto are
    believed; from anybody else they are ignored, and the log says so once. Without them all users behind a proxy share
    the limits of its address."""
    webhook_networks: Annotated[str, AfterValidator(_check_addresses)] = ""
    """Addresses or networks, separated by commas, to which webhooks may send although they are not public, such as
    10.0.0.0/8."""
    log_format: Literal["console", "json"] = "console"
    """Format of the service's log."""

    @property
    def private_directories(self) -> list[Path]:
        """Directories of the service itself, from which no job may read data."""
        return [self.state_directory, self.runs_directory, self.prepared_directory]

    @property
    def url(self) -> str:
        """URL at which programs on this machine reach the service."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def find_unknown_variables(self, names: Iterable[str]) -> dict[str, str | None]:
        """Find the environment variables that look like settings and are none, each with the nearest setting.

        It is None if none is near.
        """
        valid = [f"{PREFIX}{field.upper()}" for field in type(self).model_fields]
        known = OTHER_VARIABLES | set(valid) | set(self.worker_environment)
        unknown = sorted(name for name in names if name.upper().startswith(PREFIX) and name.upper() not in known)
        return {name: next(iter(difflib.get_close_matches(name.upper(), valid, n=1)), None) for name in unknown}
