"""Rights to read data: the owners that may use each data root, from the file of DLRM_ACCESS."""

import os
import posixpath
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from dlrm.config.patterns import is_remote, normalise_uri
from service.access.principal import Principal, Role
from service.launchers.protocol import Launcher


class Readers(BaseModel):
    """Owners that may read a data root; admins may read every root."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    owners: list[str] = []
    groups: list[str] = []


class AccessTable(BaseModel):
    """Content of the file: groups of owners, and the data roots that are not open to all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    groups: dict[str, list[str]] = {}
    """Owners of each group."""
    roots: dict[str, Readers] = {}
    """Readers of each root, which is an absolute path or a URI such as s3://bucket/key."""


class AccessTableError(Exception):
    """Error of the file; the message says what would be right."""


@dataclass(frozen=True)
class _Root:
    name: str
    """Root as the settings name it."""
    path: str
    """Root in the one form in which roots are compared: a real path, or a URI."""
    readers: frozenset[str] | None
    """Owners that may read it; None if all may."""

    def contains(self, other: "_Root") -> bool:
        """Whether `other` is below this root."""
        return other.path != self.path and f"{other.path}/".startswith(f"{self.path.rstrip('/')}/")

    def is_open_to(self, principal: Principal) -> bool:
        return self.readers is None or principal.role is Role.ADMIN or principal.owner in self.readers


class DataAccess:
    """Data roots of every launcher, with their readers."""

    def __init__(self, launchers: Mapping[str, Launcher], table: AccessTable) -> None:
        """Raise AccessTableError if a root of the table is nowhere, or lies below one that more owners may read."""
        self._roots = {name: _list_roots(launcher, table) for name, launcher in launchers.items()}
        known = {root.name for roots in self._roots.values() for root in roots}
        for name in table.roots:
            if name not in known:
                raise AccessTableError(
                    f"{name} is not a directory here, and not below the data of another launcher (data_claims, "
                    "data_stores)"
                )
        for roots in self._roots.values():
            _check_nesting(roots)

    def list_roots(self, launcher: str, principal: Principal) -> list[str]:
        """List the roots that `principal` may read with jobs of a launcher."""
        return [root.name for root in self._roots.get(launcher, []) if root.is_open_to(principal)]


def read_data_access(path: Path | None, launchers: Mapping[str, Launcher]) -> DataAccess:
    """Read the file at `path`; without one, all roots are open to all. Raises AccessTableError."""
    if path is None:
        return DataAccess(launchers, AccessTable())
    try:
        return DataAccess(launchers, AccessTable.model_validate(tomllib.loads(path.read_text())))
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        reason = f"is not TOML: {error}"
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except AccessTableError as error:
        reason = str(error)
    raise AccessTableError(f"DLRM_ACCESS: {path}: {reason}")


def _list_roots(launcher: Launcher, table: AccessTable) -> list[_Root]:
    """List the roots of a launcher and the roots that the table adds, each with its readers."""
    named = {_normalise(name, launcher): (name, _find_readers(name, table)) for name in table.roots}
    roots: dict[str, _Root] = {}
    for name in launcher.places.data_roots:
        path = _normalise(name, launcher)
        own_name, readers = named.get(path, (name, None))
        roots[path] = _Root(own_name, path, readers)
    for path, (name, readers) in named.items():
        is_seen = launcher.shares_files and (is_remote(path) or Path(path).is_dir())
        root = _Root(name, path, readers)
        if path not in roots and (is_seen or any(outer.contains(root) for outer in roots.values())):
            roots[path] = root
    return list(roots.values())


def _normalise(name: str, launcher: Launcher) -> str:
    """Return a root in the form in which roots are compared. Raises AccessTableError if it is none."""
    if is_remote(name):
        return normalise_uri(name)
    if not posixpath.isabs(name):
        raise AccessTableError(f"roots.{name} is neither an absolute path nor a URI such as s3://bucket/key")
    return os.path.realpath(name) if launcher.shares_files else posixpath.normpath(name)


def _find_readers(name: str, table: AccessTable) -> frozenset[str]:
    readers = table.roots[name]
    if unknown := sorted(set(readers.groups) - set(table.groups)):
        raise AccessTableError(f"roots.{name}.groups names {unknown[0]}, which is no group of this file")
    return frozenset(readers.owners).union(*(table.groups[group] for group in readers.groups))


def _check_nesting(roots: Iterable[_Root]) -> None:
    """Raise AccessTableError if a root lies below one that further owners may read: these would read it too."""
    for outer in roots:
        for inner in roots:
            if inner.readers is None or not outer.contains(inner):
                continue
            if outer.readers is None or not outer.readers <= inner.readers:
                who = "all owners" if outer.readers is None else ", ".join(sorted(outer.readers - inner.readers))
                raise AccessTableError(
                    f"{inner.name} is below {outer.name}, which {who} may read: name {outer.name} in [roots] too, with "
                    f"no readers beyond those of {inner.name}, and what lies beside it as roots of their own"
                )
