"""Versions of the software that trained a model."""

import platform

import torch

from dlrm.data.prepare.versions import library_versions


def versions_of_model() -> dict[str, str]:
    """Return the versions of Python, the program and its libraries, by name."""
    return {"python": platform.python_version(), "torch": str(torch.__version__), **library_versions()}
