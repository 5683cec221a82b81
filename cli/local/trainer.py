"""Libraries and programs that commands need beyond a plain install; torch is imported by child processes alone."""

import importlib.util
import sys
from collections.abc import Sequence

from cli.local.errors import CommandError


def require_trainer(module: str = "torch") -> None:
    """Raise CommandError if `module`, which the trainer imports, is not installed."""
    if importlib.util.find_spec(module) is None:
        raise CommandError(
            "the trainer is not installed here: pip install --no-deps -r requirements/cpu.txt "
            "(cuda.txt for NVIDIA GPUs), from the source tree"
        )


def make_module_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs a module of the training program with this Python interpreter."""
    return [sys.executable, "-m", module, *arguments]


def require_libraries(need: str, libraries: Sequence[str], extra: str) -> None:
    """Raise CommandError if a library is not installed.

    need: subject and verb of the error, such as "a model needs". extra: of the package, and name of its lock file.
    """
    missing = [name for name in libraries if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(
            f"{need} {', '.join(missing)}, not installed here: pip install 'dlrm-service[{extra}]', or, from the "
            f"source tree, pip install --no-deps -r requirements/{extra}.txt"
        )
