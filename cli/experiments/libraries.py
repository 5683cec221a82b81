"""Libraries of sweeps and reports. Functions import them, since other commands run without them."""

from cli.local import libraries

LIBRARIES = ("matplotlib", "numpy", "scipy")


def require_libraries() -> None:
    """Raise CommandError if a library of sweeps and reports is not installed."""
    libraries.require_libraries("sweeps and reports need", LIBRARIES, "experiments")
