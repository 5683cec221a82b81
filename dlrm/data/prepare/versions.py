"""What the bytes of a preparation depend on beside the data and the settings."""

from importlib.metadata import version

_LIBRARIES = ("dlrm-service", "numpy", "polars", "pyarrow")


def library_versions() -> dict[str, str]:
    """Of the program and of the libraries that parse, encode and write, by name."""
    return {name: version(name) for name in _LIBRARIES}
