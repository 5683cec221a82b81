"""A launcher that starts nothing, and says about attempts what a test tells it to."""

from collections.abc import Collection
from typing import Any

from service.launchers.local import LocalLauncher
from service.launchers.protocol import Launch, LaunchFiles, LaunchName, LaunchPhase, LaunchStatus


class SilentLauncher(LocalLauncher):
    """Launcher without machines, whose run directories the service does not see."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.statuses: dict[LaunchName, LaunchStatus] = {}
        self.files: dict[LaunchName, LaunchFiles] = {}
        """Files that the attempts were started with."""

    @property
    def shares_files(self) -> bool:
        return False

    def start(self, launch: Launch, files: LaunchFiles) -> None:
        self.files[launch.name] = files
        self.statuses[launch.name] = LaunchStatus(LaunchPhase.ALIVE, node="machine")

    def describe(self, launch: Launch) -> LaunchStatus:
        return self.statuses.get(launch.name, LaunchStatus(LaunchPhase.ABSENT))

    def list(self) -> Collection[Launch]:
        return []

    def stop(self, launch: Launch) -> None:
        """Do nothing: the test says when the attempt has ended."""

    def kill(self, launch: Launch) -> bool:  # noqa: ARG002
        return True

    def delete(self, launch: Launch) -> None:
        self.statuses.pop(launch.name, None)
