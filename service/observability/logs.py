"""Log of the service itself: one event per line, as readable text or as JSON."""

import logging
import re
import sys
from io import StringIO
from typing import Literal, TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def configure_logging(log_format: Literal["console", "json"]) -> None:
    """Send structlog's events and the standard library's log records to stderr, in the same format."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    rendered: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if log_format == "json":
        rendered += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        console = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_write_traceback)
        rendered += [_escape_values, console]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=rendered))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    # Alembic logs at every start of a service, even where there is nothing to migrate.
    logging.getLogger("alembic").setLevel(logging.WARNING)


def _escape_values(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Escape control characters in texts, so that nobody can write a line of his own into the log."""
    return {name: _escape(value) if isinstance(value, str) else value for name, value in event.items()}


def _escape(text: str) -> str:
    return _CONTROL_CHARACTERS.sub(lambda match: repr(match[0])[1:-1], text)


def _write_traceback(file: TextIO, exc_info: ExcInfo) -> None:
    """Write a traceback whose lines are indented, so that none of them looks like a line of the log.

    The default one shows local variables, and with them secrets.
    """
    text = StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    file.write("".join(f"\n    {_escape(line)}" for line in text.getvalue().strip("\n").split("\n")))
