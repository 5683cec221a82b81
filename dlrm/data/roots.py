"""The directories and object-store prefixes that data must be in."""

from collections.abc import Sequence
from pathlib import Path

from dlrm.config.patterns import is_remote, is_visible
from dlrm.data.errors import DataError


class Roots:
    """Data roots of a service; every path that a job names must be inside one of them. None allows every path."""

    def __init__(self, data_roots: Sequence[str] | None) -> None:
        named = data_roots or []
        self._local = None if data_roots is None else [Path(root).resolve() for root in named if not is_remote(root)]
        self.remote = None if data_roots is None else [root for root in named if is_remote(root)]

    def check(self, path: Path, named: Path | str, field: str | None, kind: str = "a file") -> None:
        """Raise DataError about `named` if the real path of `path` is outside the roots or in a hidden directory.

        Services and programs keep private files in directories whose names start with a dot. named: path as the
        user wrote it. field: field of the job document. kind: description of what `path` should be, for the message.
        """
        if self._local is not None and not is_visible(path.resolve(), self._local):
            under = " or ".join(map(str, self._local)) or "a data root; there is none on this machine"
            valid = f"{kind} under {under}, in directories whose names do not start with a dot"
            raise DataError("is outside the data roots", named, field=field, valid=valid)

    def check_object(self, name: str, named: str, field: str | None) -> None:
        """Raise DataError about `named` if the object or prefix `name` is outside the roots.

        field: field of the job document.
        """
        if self.remote is not None and not any(f"{name}/".startswith(f"{root.rstrip('/')}/") for root in self.remote):
            under = " or ".join(self.remote) or "a data root; no data root is in an object store"
            raise DataError("is outside the data roots", named, field=field, valid=f"an object under {under}")
