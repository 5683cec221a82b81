"""The directories and prefixes that data must lie in."""

from collections.abc import Sequence
from pathlib import Path

from dlrm.config.patterns import is_remote, lies_in_sight
from dlrm.data.errors import DataError


class Roots:
    """Data roots of a service, by which every path of its jobs is checked; None allows all."""

    def __init__(self, data_roots: Sequence[str] | None) -> None:
        named = data_roots or []
        self._local = None if data_roots is None else [Path(root).resolve() for root in named if not is_remote(root)]
        self.remote = None if data_roots is None else [root for root in named if is_remote(root)]

    def check(self, path: Path, named: Path | str, field: str, what: str = "a file") -> None:
        """Raise DataError about `named` where the real path of `path` is outside, or below a part that starts with a
        dot: services and programs keep there what is not meant to be read.
        """
        if self._local is not None and not lies_in_sight(path.resolve(), self._local):
            under = " or ".join(map(str, self._local)) or "a data root; there is none on this machine"
            valid = f"{what} under {under}, in directories whose names start with no dot"
            raise DataError("lies outside the data roots", named, field=field, valid=valid)
