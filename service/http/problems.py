"""Problem documents (RFC 9457), the response body of every failed request."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match, Mount
from structlog.contextvars import get_contextvars

from dlrm.config import ConfigError, FieldError
from service.database.failures import get_cause, is_database_away, is_storage_full
from service.http.invalid_requests import convert_errors
from service.http.problem_kinds import KINDS, MEDIA_TYPE

log = structlog.get_logger(__name__)

DATABASE_RETRY_SECONDS = 2
"""Seconds after which a request may be sent again if it found no database."""
BUSY_SECONDS = 2
"""Seconds after which a request may be repeated if it found no room."""
METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
READ_METHODS = frozenset({"GET", "HEAD"})
"""Methods of requests that change nothing; no body of theirs is wanted."""


class FieldProblem(BaseModel, use_attribute_docstrings=True):
    """Invalid field of a request, with what would be valid."""

    field: str
    """Dotted path of the field, or name of the parameter; empty for the whole request."""
    message: str
    """Fault in words."""
    valid: str
    """Values that would be valid; empty if the message says so."""


class ProblemDocument(BaseModel, use_attribute_docstrings=True):
    """Response body of a failed request."""

    type: str
    """URI of the kind of problem, `urn:dlrm:problem:…`; programs decide by it."""
    title: str
    """Kind of problem in words."""
    status: int
    """Status of the answer."""
    detail: str
    """Sentence on this request, with what would be valid."""
    errors: list[FieldProblem] = []
    """Fields at fault; empty for problems that are of no field."""
    request_id: str | None = None
    """Id of the request, under which the service's log has more."""


class ProblemError(Exception):
    """Failure of a request, with its problem document."""

    def __init__(
        self,
        slug: str,
        detail: str,
        *,
        status: int | None = None,
        title: str | None = None,
        errors: Sequence[FieldError] = (),
        headers: dict[str, str] | None = None,
        extensions: dict[str, Any] | None = None,
    ) -> None:
        """Initialise the problem document.

        slug: stable identifier of the kind of problem, at the end of `type`. status, title: taken from the kind if
        omitted. extensions: additional members of the document.
        """
        super().__init__(detail)
        self.status = status or KINDS[slug].status
        self.headers = headers
        document = ProblemDocument(
            type=f"urn:dlrm:problem:{slug}",
            title=title or KINDS[slug].title,
            status=self.status,
            detail=detail,
            errors=[FieldProblem(**error.as_dict()) for error in errors],
        )
        self.body: dict[str, Any] = document.model_dump() | (extensions or {})

    def to_response(self) -> JSONResponse:
        body = self.body | {"request_id": get_request_id()}
        return JSONResponse(body, status_code=self.status, headers=self.headers, media_type=MEDIA_TYPE)


def get_request_id() -> str | None:
    """Return the id of the request that this code runs for; None if it runs for none."""
    return get_contextvars().get("request_id")


def invalid_request(errors: Sequence[FieldError]) -> ProblemError:
    return ProblemError("invalid-request", _join_errors(errors), errors=errors)


def invalid_job(errors: Sequence[FieldError]) -> ProblemError:
    return ProblemError("invalid-job", _join_errors(errors), errors=errors)


def not_found(kind: str, name: str) -> ProblemError:
    return ProblemError("not-found", f"there is no {kind} {name}")


def conflict(detail: str, **extensions: Any) -> ProblemError:
    return ProblemError("conflict", detail, extensions=extensions)


def unauthenticated(detail: str) -> ProblemError:
    return ProblemError("unauthenticated", detail, headers={"WWW-Authenticate": "Bearer"})


def forbidden(detail: str) -> ProblemError:
    return ProblemError("forbidden", detail)


def database_unavailable() -> ProblemError:
    detail = "the database does not answer; running jobs continue, and the request may be sent again"
    return ProblemError("database-unavailable", detail, headers={"Retry-After": str(DATABASE_RETRY_SECONDS)})


def refuse_early(wait_seconds: float, whose: str) -> None:
    """Raise ProblemError (429) if a request comes `wait_seconds` too early."""
    if wait_seconds > 0.0:
        seconds = max(1, math.ceil(wait_seconds))
        detail = f"too many requests of {whose}; try again in {seconds} s"
        headers = {"Retry-After": str(seconds)}
        raise ProblemError("too-many-requests", detail, headers=headers)


def too_busy(detail: str) -> ProblemError:
    return ProblemError("too-busy", detail, headers={"Retry-After": str(BUSY_SECONDS)})


def add_problem_handlers(app: FastAPI, state_directory: Path) -> None:
    """Answer the errors of requests to `app` with problem documents. `Failures` answers all others.

    state_directory: directory that the answer names if its disk is full.
    """
    on_storage_error = partial(_on_storage_error, state_directory=state_directory)
    app.add_exception_handler(ProblemError, _forget_frames(_on_problem))
    app.add_exception_handler(ConfigError, _forget_frames(_on_config_error))
    app.add_exception_handler(RequestValidationError, _forget_frames(_on_validation_error))
    app.add_exception_handler(HTTPException, _forget_frames(_on_http_exception))
    app.add_exception_handler(SQLAlchemyError, on_storage_error)
    app.add_exception_handler(OSError, on_storage_error)


def _forget_frames(
    handle: Callable[[Request, Exception], JSONResponse],
) -> Callable[[Request, Exception], JSONResponse]:
    """Return a handler that also removes the tracebacks of an error and of its causes.

    The framework keeps errors in variables of the frames that they went through. Until a garbage collection, perhaps a
    hundred requests later, such a cycle would keep all that was in those frames: the body, and what became of it.
    """

    def handle_and_forget(request: Request, error: Exception) -> JSONResponse:
        answer = handle(request, error)
        cause: BaseException | None = error
        while cause is not None:
            cause.__traceback__ = None
            cause = cause.__cause__ or cause.__context__
        return answer

    return handle_and_forget


def _on_problem(_: Request, error: Exception) -> JSONResponse:
    return cast("ProblemError", error).to_response()


def _on_config_error(_: Request, error: Exception) -> JSONResponse:
    return invalid_job(cast("ConfigError", error).errors).to_response()


def _on_validation_error(request: Request, error: Exception) -> JSONResponse:
    faults = cast("RequestValidationError", error).errors()
    return invalid_request(convert_errors(faults, request.scope.get("route"))).to_response()


def _on_http_exception(request: Request, error: Exception) -> JSONResponse:
    http_error = cast("HTTPException", error)
    if isinstance(http_error.__cause__, ProblemError):
        # Raised while the body was parsed, and wrapped by the framework.
        return http_error.__cause__.to_response()
    slug = {400: "malformed-request", 404: "not-found", 405: "method-not-allowed"}.get(http_error.status_code, "http")
    headers = dict(http_error.headers or {})
    detail = str(http_error.detail)
    if http_error.status_code == 404:
        detail = _describe_missing(request)
    if http_error.status_code == 405 and (allowed := _list_allowed_methods(request)):
        headers["Allow"] = allowed
        detail = f"{detail}; allowed here: {allowed}"
    status, title = http_error.status_code, str(http_error.detail)
    return ProblemError(slug, detail, status=status, title=title, headers=headers).to_response()


def _list_allowed_methods(request: Request) -> str:
    """List the methods of all routes of the path, separated by commas; the framework names only the first route's."""
    allowed = {method for method in METHODS if _find_match(request, method=method) is Match.FULL}
    # Where there is GET there is HEAD, which no route knows of.
    allowed |= {"HEAD"} if "GET" in allowed else set()
    return ", ".join(sorted(allowed))


def _describe_missing(request: Request) -> str:
    """Describe a path that leads nowhere, with the right path if only a slash at the end is wrong."""
    path = request.url.path
    shorter = path.rstrip("/")
    if path != shorter and _find_match(request, path=shorter) is not Match.NONE:
        return f"there is nothing at {path}; use {shorter}, without the slash at the end"
    return f"there is nothing at {path}"


def _find_match(request: Request, **changes: str) -> Match:
    """Find how well the routes match a request with other members of its scope."""
    routes = [route for route in cast("FastAPI", request.app).routes if not isinstance(route, Mount)]
    matches = [route.matches({**request.scope, **changes})[0] for route in routes]
    return max(matches, key=lambda match: match.value, default=Match.NONE)


def _on_storage_error(request: Request, error: Exception, *, state_directory: Path) -> JSONResponse:
    if is_database_away(error):
        log.error("database_unavailable", method=request.method, path=request.url.path, error=get_cause(error))
        return database_unavailable().to_response()
    if not is_storage_full(error):
        raise error
    # A single line without a traceback, because every request fails like this until space is free.
    log.error("storage_full", method=request.method, path=request.url.path, error=str(getattr(error, "orig", error)))
    detail = f"the disk of {state_directory}, where the service keeps its data, is full; free space, then try again"
    return ProblemError("storage-full", detail).to_response()


def _join_errors(errors: Sequence[FieldError]) -> str:
    return "; ".join(str(error) for error in errors)
