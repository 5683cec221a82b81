"""Libraries of sweeps and reports. Functions import them, since other commands run without them."""

import importlib.util

from cli.local.errors import CommandError

LIBRARIES = ("matplotlib", "numpy", "scipy")


def require_libraries() -> None:
    """Raise CommandError if a library of sweeps and reports is not installed."""
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(
            f"sweeps and reports need {', '.join(missing)}, not installed here: pip install "
            "'dlrm-service[experiments]', or, from the source tree, pip install --no-deps -r "
            "requirements/experiments.txt"
        )
