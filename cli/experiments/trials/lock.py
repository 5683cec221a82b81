"""Lock of the directory to which a command writes its trials."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from cli.local.errors import BadInputError, CommandError
from hostinfo.file_lock import try_lock


@contextmanager
def hold_directory(path: Path, command: str) -> Generator[None]:
    """Create the directory `path` of --output, and hold its lock. Raises CommandError where another process holds it.

    command: name of the command that works there, such as `dlrm tune`, for error messages.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = (path / "lock").open("a")
    except OSError as error:
        raise BadInputError(f"--output {path}: {error.strerror} (valid: a directory that can be written)") from None
    with file:
        if not try_lock(file.fileno()):
            raise CommandError(f"{path}: another `{command}` works there; wait for it, or name another --output")
        yield
