"""Errors of the client: a refused request, and a service that does not answer."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict

from dlrm.config import FieldError


class Problem(BaseModel):
    """Problem document (RFC 9457), the body of a failed request's response."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    type: str = "about:blank"
    title: str = ""
    status: int
    detail: str | None = None
    errors: list[FieldError] = []

    @property
    def slug(self) -> str:
        """Last word of `type`, such as `invalid-job`; it identifies the kind of problem."""
        return self.type.rsplit(":", 1)[-1]

    def lines(self) -> list[str]:
        """Return the faults as readable text, one line each."""
        return [str(error) for error in self.errors] or [self.detail or self.title or f"HTTP status {self.status}"]


class ServiceError(Exception):
    """Refusal or failure of a request by the service; `problem` has the reason."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__("; ".join(problem.lines()))


class ServiceUnreachableError(Exception):
    """Error raised if no service answers at its URL."""

    def __init__(self, url: str, cause: Exception) -> None:
        self.url = url
        self.cause = cause
        self.is_silence = isinstance(cause, TimeoutError)
        """Whether nothing came in time, not even a refusal."""
        super().__init__(f"the service at {url} does not answer ({cause}); is `dlrm serve` running there?")


class ServiceAwayError(Exception):
    """Error raised if a service does not answer any more while a job is followed."""

    def __init__(self, error: ServiceError | ServiceUnreachableError, since: datetime) -> None:
        """Keep `since`, the time of the first request that the service did not answer."""
        self.since = since
        is_silent = isinstance(error, ServiceUnreachableError)
        service, cause = (f"the service at {error.url}", error.cause) if is_silent else ("the service", error)
        super().__init__(f"{service} does not answer since {since:%H:%M:%S} ({cause}); the job continues")
