"""Versions of the libraries, on which the bytes of a preparation depend besides the data and the settings."""

from importlib.metadata import version

_LIBRARIES = ("dlrm-service", "numpy", "polars", "pyarrow")


def get_library_versions() -> dict[str, str]:
    """Return the versions of this program and of the libraries that parse, encode and write, by name."""
    return {name: version(name) for name in _LIBRARIES}
