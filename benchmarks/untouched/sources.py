"""Sources of rows: packages to fetch, and directories of the user with real rows."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.untouched.errors import UnavailableError
from benchmarks.untouched.packages import Package, open_package


@dataclass(frozen=True)
class Sources:
    """Places in which the rows of the sets are found."""

    packages: Path
    """Directory in which fetched packages are kept."""
    real_rows: tuple[Path, ...] = ()
    """Directories with real rows that no package carries."""

    def open_package(self, package: Package) -> Path:
        """Return the directory with the files of a package. Raises UnavailableError."""
        return open_package(package, self.packages)

    def find_real_file(self, name: str) -> Path:
        """Return the file of this name in one of the directories with real rows. Raises UnavailableError."""
        for directory in self.real_rows:
            if (directory / name).is_file():
                return directory / name
        raise UnavailableError(f"no directory of --real-rows has {name}")
