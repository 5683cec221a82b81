"""Log of the service itself: one event per line, as readable text or as JSON."""

import logging
import sys
from typing import Literal

import structlog
from structlog.typing import Processor


def configure_logging(log_format: Literal["console", "json"]) -> None:
    """Send structlog's events and the standard library's log records to stderr, in the same format."""
    shared: list[Processor] = [
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
        # The default traceback shows local variables, and with them secrets.
        plain = structlog.dev.plain_traceback
        rendered += [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=rendered))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    # Alembic logs at every start of a service, even where there is nothing to migrate.
    logging.getLogger("alembic").setLevel(logging.WARNING)
