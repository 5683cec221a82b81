"""Launchers of a service, by the names that job documents have for them."""

from collections.abc import Iterator, Mapping

from service.launchers.absent import AbsentLauncher
from service.launchers.protocol import Launcher

AUTO = "auto"
"""Name that a document has for the first launcher of the service."""


class Launchers(Mapping[str, Launcher]):
    """Launchers by name; jobs that name none get the first one. A job may name one that is no longer there."""

    def __init__(self, by_name: Mapping[str, Launcher]) -> None:
        self._by_name = dict(by_name)

    def __getitem__(self, name: str) -> Launcher:
        return self._by_name.get(name) or AbsentLauncher(name)

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
