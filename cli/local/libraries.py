"""Optional libraries, which some commands need and others run without."""

import importlib.util
from collections.abc import Iterable

from cli.local.errors import CommandError


def require_libraries(need: str, libraries: Iterable[str], extra: str) -> None:
    """Raise CommandError if a library is not installed.

    need: subject and verb of the error, such as "a model needs". extra: of the package, and name of its lock file.
    """
    missing = [name for name in libraries if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(
            f"{need} {', '.join(missing)}, not installed here: pip install 'dlrm-service[{extra}]', or, from the "
            f"source tree, pip install --no-deps -r requirements/{extra}.txt"
        )
