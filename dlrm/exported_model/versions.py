"""Versions of the software that trained a model."""

import platform

import torch

from dlrm.data.prepare.versions import get_library_versions


def get_software_versions() -> dict[str, str]:
    """Return the versions of Python, the program and its libraries, by name."""
    return {"python": platform.python_version(), "torch": str(torch.__version__), **get_library_versions()}
