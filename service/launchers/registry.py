"""Launchers of a service, by the names that job documents have for them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from dlrm.record import RunDirectory
from service.launchers.protocol import (
    Capacity,
    FilePlaces,
    Launch,
    Launcher,
    LauncherCapacity,
    LaunchError,
    LaunchFiles,
    LaunchPhase,
    LaunchStatus,
)
from service.reasons import Reason

LauncherName = Literal["auto", "local", "kubernetes"]
"""Name of a launcher in a job document or a query."""
AUTO: LauncherName = "auto"
"""Name that a document has for the first launcher of the service."""


class Launchers(Mapping[str, Launcher]):
    """Launchers by name; jobs that name none get the first one. A job may name one that is no longer there."""

    def __init__(self, by_name: Mapping[str, Launcher]) -> None:
        self._by_name = dict(by_name)

    def __getitem__(self, name: str) -> Launcher:
        return self._by_name.get(name) or _AbsentLauncher(name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def close(self) -> None:
        """End the threads of all launchers; attempts run on."""
        for launcher in self._by_name.values():
            launcher.close()

    def resolve(self, name: str) -> str:
        """Return the name of the launcher that `name` in a document stands for."""
        return next(iter(self._by_name)) if name == AUTO else name


class _AbsentLauncher(Launcher):
    """Launcher that jobs have named and the service no longer has: nothing is known of its attempts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._advice = f"this service has no launcher {name}: name it in DLRM_LAUNCHERS again"

    @property
    def ingest_url(self) -> str:
        return ""

    @property
    def places(self) -> FilePlaces:
        return FilePlaces(Path("/"), "/", ())

    def describe_place(self, run_directory: RunDirectory) -> str:
        return f"{run_directory.path}, where the machines of the launcher {self._name} see it"

    def start(self, launch: Launch, files: LaunchFiles) -> None:
        raise LaunchError(self._advice)

    def describe(self, launch: Launch) -> LaunchStatus:
        return LaunchStatus(LaunchPhase.UNSEEN, Reason.UNSEEN, self._advice, launch.node)

    def kill(self, launch: Launch) -> bool:
        """Say that nothing is left: a job that is cancelled meanwhile ends."""
        return True

    def capacity(self) -> LauncherCapacity:
        return LauncherCapacity(Capacity(0, 0, 0), Capacity(0, 0, 0))
