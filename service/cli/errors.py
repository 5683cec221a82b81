"""What a command says when it cannot go on: one line a fault, with what would mend it."""

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


class CommandError(Exception):
    """Ends the command with `lines` on stderr."""

    exit_code = EXIT_FAILED

    def __init__(self, *lines: str) -> None:
        self.lines = lines
        super().__init__("; ".join(lines))


class BadInputError(CommandError):
    """What the user gave cannot be used; the lines say what could."""

    exit_code = EXIT_BAD_INPUT
