"""Errors that end a command, with one line for each fault and its remedy."""

from collections.abc import Mapping

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_SERVICE_AWAY = 3
"""Exit code of a command that followed a job and gave up waiting for the service; the job continues."""
EXIT_INTERRUPTED = 130


class CommandError(Exception):
    """Error that ends the command: `lines` go to stderr, and the exit code is `exit_code`."""

    exit_code = EXIT_FAILED

    def __init__(self, *lines: str) -> None:
        self.lines = lines
        super().__init__("; ".join(lines))


class BadInputError(CommandError):
    """Error for invalid input of the user; the lines say what would be valid."""

    exit_code = EXIT_BAD_INPUT


def refuse_options(options: Mapping[str, object], reason: str) -> None:
    """Raise BadInputError if an option, by its name, has a value other than None, which `reason` forbids."""
    for option, value in options.items():
        if value is not None:
            raise BadInputError(f"{option}: {reason}")
