"""Runner for programs of the trainer that read one JSON document on stdin and report progress as lines of JSON."""

import json
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from cli.local import errors
from cli.local.progress import ProgressLine
from cli.local.trainer import make_module_command
from dlrm.record import EXIT_BAD_INPUT, EXIT_DONE
from hostinfo.child import run_in_session
from service.client import Progress

LAST_LINES = 15
"""Number of lines of a failed program's stderr that the error shows."""


class ProgramStopped(Exception):  # noqa: N818, requested, not an error
    """Exception for a program that has stopped on request; it ends the command with EXIT_INTERRUPTED."""


class ReaderGone(Exception):  # noqa: N818, not an error either
    """Exception for a program that was ended by SIGPIPE, because the reader of its output has closed the pipe."""


def run_program(
    module: str,
    arguments: Sequence[str],
    document: Mapping[str, Any] | None,
    label: str,
    *,
    descriptors: Sequence[int] = (),
    is_shown: bool = True,
) -> dict[str, Any]:
    """Run `python -m module arguments`, show its progress and notes, and return its result.

    The program reads `document` as JSON on stdin, and writes lines of JSON to stdout:
    `{"kind": "progress", "done_fraction", "message"}`, `{"kind": "note", "name", "message"}`, and as the last line
    `{"kind": "result", …}`. SIGINT and SIGTERM are passed on to it as SIGTERM.

    label: word shown next to the progress. descriptors: open file descriptors that the program inherits. is_shown:
    whether to show progress. Raises BadInputError, ProgramStopped, ReaderGone and CommandError.
    """
    with (
        tempfile.TemporaryFile("w+", errors="replace") as stderr,
        run_in_session(
            make_module_command(module, arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            errors="replace",
            pass_fds=descriptors,
        ) as (child, signals),
        ProgressLine() as line,
    ):
        assert child.stdin is not None, "it is a pipe"
        assert child.stdout is not None, "it is a pipe"
        _write(child, "" if document is None else json.dumps(document))
        result = _read_reports(child.stdout, line, label if is_shown else None)
        code = child.wait()
        stderr.seek(0)
        lines = stderr.read().strip().splitlines()
    if code == EXIT_DONE and result is not None:
        return result
    raise _make_error(code, lines, bool(signals))


def _read_reports(output: Iterable[str], line: ProgressLine, label: str | None) -> dict[str, Any] | None:
    """Show the progress and the notes in a program's output, up to its end, and return its result, if it has one.

    label: word shown next to the progress; None: it is not shown.
    """
    result: dict[str, Any] | None = None
    for text in output:
        report = _parse_line(text)
        match report.get("kind"):
            case "progress" if label is not None:
                fraction = report["done_fraction"]
                line.show(label, Progress(phase="preparing", message=report["message"], done_fraction=fraction))
            case "note":
                line.print_line(f"{report['name'].replace('_', ' ')}: {report['message']}")
            case "result":
                result = report
            case _:
                # Progress that is not shown, or what a library of the program has printed, such as a store's client.
                pass
    return result


def _parse_line(text: str) -> dict[str, Any]:
    """Return the object in a line of a program's output; an empty one if there is none."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _write(child: subprocess.Popen[str], text: str) -> None:
    assert child.stdin is not None, "it is a pipe"
    try:
        child.stdin.write(text)
        child.stdin.close()
    except BrokenPipeError:
        # The program has already ended; its exit code says why.
        child.stdin = None


def _make_error(code: int, lines: Sequence[str], is_stop_requested: bool) -> Exception:
    if code == EXIT_BAD_INPUT:
        return errors.BadInputError(*(line.removeprefix("error: ") for line in lines))
    if is_stop_requested:
        return ProgramStopped()
    if code == -signal.SIGPIPE:
        return ReaderGone()
    if code == -signal.SIGKILL:
        return errors.CommandError("the program was killed, perhaps by the kernel because memory was short")
    return errors.CommandError(f"the program ended with exit code {code}; its last lines:", *lines[-LAST_LINES:])
